import ChangeFeed
import LinuxSystem
import Synchronization

/// The thread that reads whole stores, so that the feed thread never does. It starts with the first scan, and sleeps on
/// a semaphore between scans.
final class PageMapScanner: Sendable {
    private struct Job {
        let scan: PageMapScan
        let done: @Sendable () -> Void
    }

    private struct State {
        var jobs: [Job] = []
        var thread: SystemThread?
        var isStopping = false
    }

    private let state = Mutex(State())
    private let arrived = MonotonicSemaphore()

    /// Runs the scan after earlier ones, then calls `done` on the same thread. Returns false if the thread can't be
    /// created.
    func perform(_ scan: PageMapScan, _ done: @escaping @Sendable () -> Void) -> Bool {
        let isThere = state.withLock { state in
            if state.thread == nil, !state.isStopping {
                state.thread = try? SystemThread(name: "gs-survey") { [self] in work() }
            }
            guard state.thread != nil else { return false }
            state.jobs.append(Job(scan: scan, done: done))
            return true
        }
        if isThere { arrived.signal() }
        return isThere
    }

    private func work() {
        while true {
            arrived.wait()
            let job: Job? = state.withLock { $0.jobs.isEmpty ? nil : $0.jobs.removeFirst() }
            if let job {
                job.scan.run()
                job.done()
            } else if state.withLock({ $0.isStopping }) {
                return
            }
        }
    }

    /// Stops the thread. Cancelled scans end at once.
    func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        arrived.signal()
        _ = thread?.join(within: .seconds(5))
    }
}
