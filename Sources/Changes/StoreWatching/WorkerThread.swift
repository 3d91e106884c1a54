import LinuxSystem
import Synchronization

/// A thread for work that would take the feed thread too long: reading whole stores, looking at all processes. It
/// starts with the first work, and sleeps on a semaphore between works.
final class WorkerThread: Sendable {
    private struct State {
        var jobs: [@Sendable () -> Void] = []
        var thread: SystemThread?
        var isStopping = false
    }

    private let name: String
    private let state = Mutex(State())
    private let arrived = MonotonicSemaphore()

    init(name: String) { self.name = name }

    /// Runs `job` after earlier ones. Returns false if the thread can't be created.
    func perform(_ job: @escaping @Sendable () -> Void) -> Bool {
        let isThere = state.withLock { state in
            if state.thread == nil, !state.isStopping {
                state.thread = try? SystemThread(name: name) { [self] in work() }
            }
            guard state.thread != nil else { return false }
            state.jobs.append(job)
            return true
        }
        if isThere { arrived.signal() }
        return isThere
    }

    private func work() {
        while true {
            arrived.wait()
            let job: (@Sendable () -> Void)? = state.withLock { $0.jobs.isEmpty ? nil : $0.jobs.removeFirst() }
            if let job {
                job()
            } else if state.withLock({ $0.isStopping }) {
                return
            }
        }
    }

    /// Stops the thread once the work is done.
    func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        arrived.signal()
        _ = thread?.join(within: .seconds(5))
    }
}
