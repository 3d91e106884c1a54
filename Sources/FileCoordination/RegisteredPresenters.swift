import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization

/// The presenters of this process in one group container, and the registry that knows them.
package final class RegisteredPresenters: Sendable {
    package let registry: any PresenterRegistry
    /// The accesses that coordinators have been granted.
    let accesses = ActiveAccesses()
    private let state = Mutex(State())

    private struct State {
        var seats: [RegisteredPresenter] = []
        /// Those that still carry out what they were asked.
        var leaving: [RegisteredPresenter] = []
    }

    package init(registry: any PresenterRegistry) { self.registry = registry }

    package func add(_ presenter: any FilePresenter, in container: GroupContainer) async throws -> RegisteredPresenter {
        guard let url = presenter.presentedItemURL else {
            throw FileCoordinationError(
                .outsideContainer, "the presenter presents nothing", remedy: "return a URL from presentedItemURL")
        }
        do {
            let item = try container.item(at: url)
            let (seat, isNew) = seat(for: presenter, item, container)
            if isNew {
                do {
                    try await SystemThread.run(name: "gs-present") { try seat.register() }
                } catch {
                    remove(presenter)
                    throw error
                }
            }
            do {
                try await seat.untilReady()
            } catch {
                if isNew { remove(presenter) }
                throw error
            }
            return seat
        } catch let error as CancellationError {
            throw error
        } catch {
            throw FileCoordinationError(error)
        }
    }

    /// A presenter has one seat: it would be called twice at once otherwise.
    private func seat(
        for presenter: any FilePresenter, _ item: ClaimedItem, _ container: GroupContainer
    ) -> (RegisteredPresenter, isNew: Bool) {
        let (seat, isNew, former) = state.withLock { state in
            let former = state.seats.first { $0.isSeat(of: presenter) }
            if let former, former.item == item { return (former, false, RegisteredPresenter?.none) }
            state.seats.removeAll { $0.isSeat(of: presenter) }
            if let former { state.leaving.append(former) }
            let seat = RegisteredPresenter(
                presenter, item, in: container, registry: registry,
                after: state.leaving.last { $0.isSeat(of: presenter) })
            state.seats.append(seat)
            return (seat, true, former)
        }
        former.map(dismiss)
        return (seat, isNew)
    }

    package func remove(_ presenter: any FilePresenter) {
        let found = state.withLock { state in
            let found = state.seats.filter { $0.isSeat(of: presenter) }
            state.seats.removeAll { $0.isSeat(of: presenter) }
            state.leaving += found
            return found
        }
        for seat in found { dismiss(seat) }
    }

    private func dismiss(_ seat: RegisteredPresenter) {
        seat.leave()
        Task { [weak self] in
            await seat.untilFinished()
            self?.state.withLock { $0.leaving.removeAll { $0 === seat } }
        }
    }

    package func seat(of presenter: any FilePresenter) -> RegisteredPresenter? {
        state.withLock { $0.seats.first { $0.isSeat(of: presenter) } }
    }

    private var isEmpty: Bool { state.withLock { $0.seats.isEmpty && $0.leaving.isEmpty } }
}

// MARK: - One for each group container

extension RegisteredPresenters {
    /// Where registries of group containers come from; `GroupStore` puts in one that speaks to the agent.
    package static let makeRegistry = Mutex<@Sendable (GroupContainer) -> any PresenterRegistry>({ _ in
        InProcessRegistry()
    })
    private static let known = Mutex<[Place: KnownPresenter]>([:])

    private struct KnownPresenter {
        let container: GroupContainer
        let seats: RegisteredPresenters

        /// Its directory was removed or replaced, and nobody presents anything in it: its connection to the agent would
        /// be kept for nobody.
        var isObsolete: Bool {
            seats.isEmpty
                && FileStatus(following: container.directory.path)?.identity != container.directory.identity
        }
    }

    /// Several directories may go by one identifier, and one by several.
    private struct Place: Hashable {
        let name: String
        let directory: FileIdentity
    }

    /// One for each group container in the process: whoever presents and whoever coordinates must meet.
    package static func process(_ container: GroupContainer) -> RegisteredPresenters {
        let place = Place(name: container.name, directory: container.directory.identity)
        let (seats, obsolete) = known.withLock { known -> (RegisteredPresenters, [KnownPresenter]) in
            if let found = known[place] { return (found.seats, []) }
            let obsolete = known.filter { $0.value.isObsolete }
            for place in obsolete.keys { known[place] = nil }
            let made = RegisteredPresenters(registry: makeRegistry.withLock { $0 }(container))
            known[place] = KnownPresenter(container: container, seats: made)
            return (made, Array(obsolete.values))
        }
        // Let go of outside the lock: what ends with them is no business of those who wait for it.
        withExtendedLifetime(obsolete) {}
        return seats
    }
}

/// How many accesses of each purpose are under way in this process.
final class ActiveAccesses: Sendable {
    private let counts = Mutex<[String: Int]>([:])

    func began(_ purpose: String) { counts.withLock { $0[purpose, default: 0] += 1 } }

    func ended(_ purpose: String) {
        counts.withLock { counts in
            let left = counts[purpose, default: 1] - 1
            counts[purpose] = left == 0 ? nil : left
        }
    }

    func has(_ purpose: String) -> Bool { counts.withLock { $0[purpose] != nil } }
}
