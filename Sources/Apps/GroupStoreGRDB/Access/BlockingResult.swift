import LinuxSystem
import Synchronization

/// Passes the result of a task to a thread that waits for it.
final class BlockingResult: Sendable {
    private let result = Mutex<Result<Void, any Error>>(.success(()))
    private let signal = MonotonicSemaphore()

    func set(_ body: () async throws -> Void) async {
        do {
            try await body()
        } catch {
            result.withLock { $0 = .failure(error) }
        }
        signal.signal()
    }

    func wait() throws {
        signal.wait()
        try result.withLock { $0 }.get()
    }
}
