import CLinux
import Dispatch
import LinuxSystem
import Synchronization
import Testing

/// A trait that runs tests on threads of their own.
///
/// A test that waits for whole processes would block other tests on the shared threads. A test that says when a file is
/// closed needs a table of descriptors that no child process of another test has inherited: until such a child calls
/// execve(2), the file isn't closed.
package struct OwnThreads: SuiteTrait, TestTrait, TestScoping {
    fileprivate let executor: Result<OwnThreadExecutor, any Error>

    package var isRecursive: Bool { true }

    package func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let executor = try executor.get()
        // On these threads, because the shared ones are busy with the other tests.
        try await withTaskExecutorPreference(executor) {
            await executor.admit()
            defer { executor.leave() }
            try await function()
        }
    }
}

extension Trait where Self == OwnThreads {
    package static var ownThreads: Self { Self(executor: OwnThreadExecutor.forWaiting) }

    /// One thread with a table of descriptors of its own, for synchronous tests. Only this thread knows what they open.
    package static var ownDescriptors: Self { Self(executor: OwnThreadExecutor.withOwnDescriptors) }
}

private final class OwnThreadExecutor: TaskExecutor {
    /// As many tests as keep two cores busy.
    static let forWaiting = Result { () throws -> OwnThreadExecutor in
        let executor = OwnThreadExecutor(threads: 8)
        for _ in 0..<8 { _ = try SystemThread(name: "tests") { executor.run() } }
        return executor
    }

    static let withOwnDescriptors = Result { () throws -> OwnThreadExecutor in
        let executor = OwnThreadExecutor(threads: 1)
        _ = try SystemThread(name: "own-descriptors") {
            // Runs nothing without it: the tests then time out instead of passing by luck.
            guard gs_unshare_descriptors(2) == 0 else { return }
            executor.run()
        }
        return executor
    }

    private let jobs = Mutex<[UnownedJob]>([])
    private let waiting = DispatchSemaphore(value: 0)
    private let admission: Mutex<(free: Int, waiting: [CheckedContinuation<Void, Never>])>

    private init(threads: Int) { admission = Mutex((threads, [])) }

    /// Returns once fewer tests than threads have begun. A test that has begun then finds a thread after each of its
    /// waits at once. Behind tests that haven't begun, it would hold up the programs that wait for it for minutes.
    func admit() async {
        await withCheckedContinuation { continuation in
            let isAdmitted = admission.withLock { admission in
                guard admission.free == 0 else {
                    admission.free -= 1
                    return true
                }
                admission.waiting.append(continuation)
                return false
            }
            if isAdmitted { continuation.resume() }
        }
    }

    /// Admits the next test.
    func leave() {
        let next = admission.withLock { admission -> CheckedContinuation<Void, Never>? in
            guard admission.waiting.isEmpty else { return admission.waiting.removeFirst() }
            admission.free += 1
            return nil
        }
        next?.resume()
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
