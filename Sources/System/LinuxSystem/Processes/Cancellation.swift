import Synchronization

/// A cancellation request. Any thread may make it, and the work polls it.
package final class Cancellation: Sendable {
    private let requested = Atomic<Bool>(false)

    package init() {}

    package var isRequested: Bool { requested.load(ordering: .acquiring) }

    package func request() { requested.store(true, ordering: .releasing) }
}
