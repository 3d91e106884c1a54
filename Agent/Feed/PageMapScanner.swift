import ChangeFeed
import Dispatch
import LinuxSystem
import Synchronization

/// The thread that reads stores whole, so that the one that tells of changes never does. There is none before the
/// first survey, and it sleeps on a semaphore between two.
final class PageMapScanner: Sendable {
    private struct Order {
        let survey: PageMapScan
        let done: @Sendable () -> Void
    }

    private struct State {
        var orders: [Order] = []
        var thread: SystemThread?
        var isStopping = false
    }

    private let state = Mutex(State())
    private let arrived = DispatchSemaphore(value: 0)

    /// Runs the survey after those that were left before it, then calls `done` on the same thread. False when there can be
    /// no thread.
    func perform(_ survey: PageMapScan, _ done: @escaping @Sendable () -> Void) -> Bool {
        let isThere = state.withLock { state in
            if state.thread == nil, !state.isStopping {
                state.thread = try? SystemThread(name: "gs-survey") { [self] in work() }
            }
            guard state.thread != nil else { return false }
            state.orders.append(Order(survey: survey, done: done))
            return true
        }
        if isThere { arrived.signal() }
        return isThere
    }

    private func work() {
        while true {
            arrived.wait()
            let order: Order? = state.withLock { $0.orders.isEmpty ? nil : $0.orders.removeFirst() }
            if let order {
                order.survey.run()
                order.done()
            } else if state.withLock({ $0.isStopping }) {
                return
            }
        }
    }

    /// Surveys that were cancelled end at once.
    func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        arrived.signal()
        _ = thread?.join(within: .seconds(5))
    }
}
