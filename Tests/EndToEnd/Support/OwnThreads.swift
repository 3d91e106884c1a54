import Dispatch
import LinuxSystem
import Synchronization
import Testing

/// Runs tests on a few threads of their own. They wait for whole processes, and on the threads that all tasks share they
/// would keep those of the other tests from running.
struct OwnThreads: SuiteTrait, TestTrait, TestScoping {
    var isRecursive: Bool { true }

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let executor = try WaitingThreads.shared.get()
        try await withTaskExecutorPreference(executor) { try await function() }
    }
}

extension Trait where Self == OwnThreads {
    static var ownThreads: Self { Self() }
}

private final class WaitingThreads: TaskExecutor {
    /// As many tests at a time as two cores are busy with.
    private static let count = 4

    static let shared = Result { try WaitingThreads() }

    private let jobs = Mutex<[UnownedJob]>([])
    private let waiting = DispatchSemaphore(value: 0)

    private init() throws {
        for _ in 0..<Self.count { _ = try SystemThread(name: "tests") { [self] in run() } }
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        jobs.withLock { $0.append(job) }
        waiting.signal()
    }

    private func run() {
        while true {
            waiting.wait()
            jobs.withLock { $0.removeFirst() }.runSynchronously(on: asUnownedTaskExecutor())
        }
    }
}
