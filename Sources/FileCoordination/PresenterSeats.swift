import FoundationEssentials
import GroupContainer
import LinuxSystem
import Synchronization

/// The presenters of this process in one group container, and the registry that knows them.
package final class PresenterSeats: Sendable {
    package let registry: any PresenterRegistry
    private let seats = Mutex<[PresenterSeat]>([])

    package init(registry: any PresenterRegistry) { self.registry = registry }

    /// Where registries of group containers come from; `GroupStore` puts in one that speaks to the agent.
    package static let makeRegistry = Mutex<@Sendable (GroupContainer) -> any PresenterRegistry>({ _ in
        MemoryRegistry()
    })
    private static let known = Mutex<[Place: PresenterSeats]>([:])

    /// Several directories may go by one identifier, and one by several.
    private struct Place: Hashable {
        let name: String
        let directory: FileIdentity
    }

    /// One for each group container in the process: whoever presents and whoever coordinates must meet.
    package static func process(_ container: GroupContainer) -> PresenterSeats {
        let place = Place(name: container.name, directory: container.directory.identity)
        return known.withLock { known in
            if let found = known[place] { return found }
            let made = PresenterSeats(registry: makeRegistry.withLock { $0 }(container))
            known[place] = made
            return made
        }
    }

    package func add(_ presenter: any FilePresenter, in container: GroupContainer) async throws {
        guard let url = presenter.presentedItemURL else {
            throw FileCoordinationError(
                .outsideContainer, "the presenter presents nothing", remedy: "return a URL from presentedItemURL")
        }
        do {
            let item = try container.item(at: url)
            let seat = try await SystemThread.run(name: "gs-present") { [registry] in
                try PresenterSeat(presenter, item, in: container, registry: registry)
            }
            seats.withLock { $0.append(seat) }
            await seat.untilReady()
        } catch {
            throw FileCoordinationError(error)
        }
    }

    package func remove(_ presenter: any FilePresenter) {
        let found = seats.withLock { seats in
            defer { seats.removeAll { $0.isSeat(of: presenter) } }
            return seats.filter { $0.isSeat(of: presenter) }
        }
        for seat in found { seat.leave() }
    }

    func seat(of presenter: any FilePresenter) -> PresenterSeat? {
        seats.withLock { $0.first { $0.isSeat(of: presenter) } }
    }
}
