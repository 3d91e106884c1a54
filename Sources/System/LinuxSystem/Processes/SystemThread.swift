import CLinux
import Glibc
import SystemPackage

/// A thread with a name that debuggers and `ps -L` show.
///
/// Hand-written because Foundation's `Thread` needs all of Foundation; the package links only FoundationEssentials.
package final class SystemThread: Sendable {
    private final class Start {
        let name: String
        let body: () -> Void
        let ended: MonotonicSemaphore

        init(name: String, body: @escaping () -> Void, ended: MonotonicSemaphore) {
            self.name = name
            self.body = body
            self.ended = ended
        }
    }

    private let ended = MonotonicSemaphore()

    /// Runs `body` on a new thread with the calling thread's signal mask. `name` may have at most 15 bytes.
    package init(name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
        let start = Unmanaged.passRetained(Start(name: name, body: body, ended: ended))
        var thread = pthread_t()
        let result = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                let start = Unmanaged<Start>.fromOpaque(argument).takeRetainedValue()
                gs_name_thread(start.name)
                start.body()
                start.ended.signal()
                return nil
            }, start.toOpaque())
        guard result == 0 else {
            start.release()
            throw SystemError("pthread_create", Errno(rawValue: result))
        }
        pthread_detach(thread)
    }

    /// Runs `body` on its own thread while a task waits. Use it for blocking work, which would occupy one of the few
    /// threads that tasks share. Throws the errors of `body`, and `SystemError` if no thread can be created.
    package static func run<Result: Sendable>(
        name: String, _ body: @escaping @Sendable () throws -> Result
    ) async throws -> Result {
        try await withCheckedThrowingContinuation { continuation in
            do throws(SystemError) {
                _ = try SystemThread(name: name) { continuation.resume(with: Swift.Result { try body() }) }
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }

    /// Waits for the thread's end. Returns false if it does not end in time, and may then be called again. Only one
    /// thread may wait.
    package func join(within duration: Duration) -> Bool {
        ended.wait(within: duration)
    }
}
