import Synchronization

/// A wish that work ends, which any thread may have; the work asks for it.
package final class Cancellation: Sendable {
    private let requested = Atomic<Bool>(false)

    package init() {}

    package var isRequested: Bool { requested.load(ordering: .acquiring) }

    package func request() { requested.store(true, ordering: .releasing) }
}
