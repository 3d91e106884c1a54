import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization

/// The presenters of this process in one group container, and the registry that knows them.
package final class RegisteredPresenters: Sendable {
    package let registry: any PresenterRegistry
    /// The accesses that this process's coordinators have been granted.
    let accesses = ActiveAccesses()
    private let state = Mutex(State())

    private struct State {
        var registered: [RegisteredPresenter] = []
        /// Ended registrations whose presenters still carry out a request.
        var finishing: [RegisteredPresenter] = []
    }

    package init(registry: any PresenterRegistry) { self.registry = registry }

    package func add(_ presenter: any FilePresenter, in container: GroupContainer) async throws -> RegisteredPresenter {
        guard let url = presenter.presentedItemURL else {
            throw FileCoordinationError(
                .outsideContainer, "the presenter has no presentedItemURL", remedy: "return a URL from presentedItemURL"
            )
        }
        do {
            let item = try container.item(at: url)
            let (registration, isNew) = registration(for: presenter, item, container)
            if isNew {
                do {
                    try await SystemThread.run(name: "gs-present") { try registration.register() }
                } catch {
                    remove(presenter)
                    throw error
                }
            }
            do {
                try await registration.waitUntilReady()
            } catch {
                if isNew { remove(presenter) }
                throw error
            }
            return registration
        } catch let error as CancellationError {
            throw error
        } catch {
            throw FileCoordinationError(error)
        }
    }

    /// Returns the presenter's registration, creating it if needed. A presenter never has two: its methods could be
    /// called concurrently.
    private func registration(
        for presenter: any FilePresenter, _ item: ClaimedItem, _ container: GroupContainer
    ) -> (RegisteredPresenter, isNew: Bool) {
        let (registration, isNew, former) = state.withLock { state in
            let former = state.registered.first { $0.isRegistration(of: presenter) }
            if let former, former.item == item { return (former, false, RegisteredPresenter?.none) }
            state.registered.removeAll { $0.isRegistration(of: presenter) }
            if let former { state.finishing.append(former) }
            let registration = RegisteredPresenter(
                presenter, item, in: container, registry: registry,
                after: state.finishing.last { $0.isRegistration(of: presenter) })
            state.registered.append(registration)
            return (registration, true, former)
        }
        former.map(dismiss)
        return (registration, isNew)
    }

    package func remove(_ presenter: any FilePresenter) {
        let found = state.withLock { state in
            let found = state.registered.filter { $0.isRegistration(of: presenter) }
            state.registered.removeAll { $0.isRegistration(of: presenter) }
            state.finishing += found
            return found
        }
        for registration in found { dismiss(registration) }
    }

    private func dismiss(_ registration: RegisteredPresenter) {
        registration.unregister()
        Task { [weak self] in
            await registration.waitUntilFinished()
            self?.state.withLock { $0.finishing.removeAll { $0 === registration } }
        }
    }

    package func registration(of presenter: any FilePresenter) -> RegisteredPresenter? {
        state.withLock { $0.registered.first { $0.isRegistration(of: presenter) } }
    }

    private var isEmpty: Bool { state.withLock { $0.registered.isEmpty && $0.finishing.isEmpty } }
}

// MARK: - Shared by the process

extension RegisteredPresenters {
    /// Creates the registry of a group container. `GroupStore` installs one that talks to the agent, once per process.
    ///
    /// It is global because apps make a coordinator or register a presenter from the container alone, as with
    /// `NSFileCoordinator`: the container's module lies below this one, the agent's client above it, and all
    /// coordinators and presenters of the process must share one registry. Whatever doesn't need that, such as the
    /// agent, a relocation and the tests, passes a registry to an initializer.
    package static let makeRegistry = Mutex<@Sendable (GroupContainer) -> any PresenterRegistry>({ _ in
        InProcessRegistry()
    })
    private static let entries = Mutex<[Key: Entry]>([:])

    private struct Entry {
        let container: GroupContainer
        let presenters: RegisteredPresenters

        func isReplaced(by other: GroupContainer) -> Bool {
            container.directory.path == other.directory.path && !container.isCurrent
        }

        /// True if the directory was removed or replaced and has no presenters left: its connection to the agent would
        /// serve nobody.
        var isObsolete: Bool { presenters.isEmpty && !container.isCurrent }
    }

    /// Several directories may share an identifier, and one may have several.
    private struct Key: Hashable {
        let name: String
        let directory: FileIdentity
    }

    /// Returns the presenters of a group container in this process. All presenters and coordinators of the container
    /// share this value.
    package static func shared(in container: GroupContainer) -> RegisteredPresenters {
        let key = Key(name: container.name, directory: container.directory.identity)
        let (presenters, obsolete) = entries.withLock { entries -> (RegisteredPresenters, [Entry]) in
            if let found = entries[key] { return (found.presenters, []) }
            // Another directory has replaced the one that these presenters know by this path. They stay the same, and
            // are asked about the items there.
            let former = entries.first { $0.key.name == key.name && $0.value.isReplaced(by: container) }
            if let former {
                entries[key] = Entry(container: container, presenters: former.value.presenters)
                return (former.value.presenters, [])
            }
            let obsolete = entries.filter { $0.value.isObsolete }
            for key in obsolete.keys { entries[key] = nil }
            let made = RegisteredPresenters(registry: makeRegistry.withLock { $0 }(container))
            entries[key] = Entry(container: container, presenters: made)
            return (made, Array(obsolete.values))
        }
        // Released outside the lock: their deinitializers must not delay other callers.
        withExtendedLifetime(obsolete) {}
        return presenters
    }
}

/// The number of accesses in progress in this process, by purpose.
final class ActiveAccesses: Sendable {
    private let counts = Mutex<[String: Int]>([:])

    func begin(_ purpose: String) { counts.withLock { $0[purpose, default: 0] += 1 } }

    func end(_ purpose: String) {
        counts.withLock { counts in
            let left = counts[purpose, default: 1] - 1
            counts[purpose] = left == 0 ? nil : left
        }
    }

    func contains(_ purpose: String) -> Bool { counts.withLock { $0[purpose] != nil } }
}
