import CommandSupport
import Glibc
import Synchronization

/// The feed's messages while it begins: an error that ends the command is not printed as a message too.
final class HeldMessages: Sendable {
    private let messages = Mutex<[String]?>([])

    func print(_ message: String) {
        let isHeld = messages.withLock { messages in
            messages?.append(message)
            return messages != nil
        }
        if !isHeld { write(message) }
    }

    /// Prints what was held, except one message. Later ones are printed at once.
    func release(except error: String? = nil) {
        let held = messages.withLock { $0.take() } ?? []
        for message in held where message != error { write(message) }
    }

    private func write(_ message: String) { Output.write("groupstore: \(message)", to: STDERR_FILENO) }
}
