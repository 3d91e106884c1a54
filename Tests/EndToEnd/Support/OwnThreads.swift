import Dispatch
import LinuxSystem
import Synchronization
import Testing

/// A trait that runs tests on a few threads of their own. The tests wait for whole processes and would block other
/// tests on the shared threads.
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
    /// The number of tests that keeps two cores busy.
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
