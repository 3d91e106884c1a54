import FileCoordination
import FoundationEssentials
import LinuxSystem
import Synchronization

/// A store that this process keeps open, and lets go of when it is asked.
///
/// `close` and `open` are called one after another, never two at once: `open` first, with where the store is; `close`
/// when somebody wants to move or replace it; `open` again, with where it is then. Ended by `end`, which lets go of both.
///
/// A store that is moved in a coordinated access (`FileCoordinator.item(at:didMoveTo:)`) is opened at its new place, and
/// presented there from then on. Only the first `open` may make the store: one that was there, and isn't any more, is not
/// opened until it is there again.
///
/// While the store is open, nobody is granted a coordinated access that displaces presenters, even one who can't ask
/// this one: such an access waits, and `busy` names this process.
public final class StorePresentation: FilePresenter {
    private let store: SharedStore
    public let openableModelVersions: Set<String>?
    private let runner: PresentationRunner

    init(
        _ store: SharedStore, _ versions: Set<String>?, open: @escaping @Sendable (URL) async throws -> Void,
        close: @escaping @Sendable () async throws -> Void,
        failed: @escaping @Sendable (any Error) async -> Void
    ) {
        self.store = store
        openableModelVersions = versions
        runner = PresentationRunner(store, open: open, close: close, failed: failed)
    }

    /// Where the store was opened last.
    public var url: URL { runner.url }

    /// False while it has let go.
    public var isOpen: Bool { runner.isOpen }

    /// Who asks this process to let go; nil once it has ended. The store is protected all the same where nobody can.
    public var registration: FilePresenterRegistration? {
        FileCoordinator.registration(of: self, in: store.container)
    }

    /// The place in the group container, which it is known by even before it is there, and wherever it was moved since.
    public var presentedItemURL: URL? { store.container.url(of: item) }

    var item: ClaimedItem { RegisteredPresenters.process(store.container).seat(of: self)?.latestItem ?? store.item }

    /// The store under the name that it has now; nil where it was moved into a directory of the group container.
    package var presentedStore: SharedStore? { store.moved(to: item) }

    func begin() async throws {
        let seat = try await RegisteredPresenters.process(store.container).add(self, in: store.container)
        if case .refused(let reason) = seat.registration { runner.report(refused: reason) }
        do {
            try await runner.begin(self)
        } catch {
            do {
                try await runner.end()
            } catch let failure {
                // A store that was opened for whoever gave up stays open, and nobody else would say so.
                await runner.report(failure)
            }
            FileCoordinator.removeFilePresenter(self, in: store.container)
            throw error
        }
    }

    /// Closes the store, and presents it no longer. What is under way is waited for, but for `failed`, which may call
    /// this. Where `close` throws, so does this: the store then stays open and presented, and it can be ended once more.
    public func end() async throws { try await runner.end() }

    // MARK: FilePresenter

    public func relinquishPresentedItemToReader() async throws -> Reacquirer? {
        // SQLite's own locks keep readers and writers of a store apart.
        nil
    }

    public func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        try await runner.relinquish()
        return { [runner] in runner.reacquire() }
    }

    public func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async {
        if case .refused(let reason) = registration { runner.report(refused: reason) }
    }
}

extension SharedStore {
    /// Opens the store and keeps it presented until `end` of what is returned. Without an agent that serves the group it
    /// is opened all the same, and presented as soon as there is one. The task's cancellation ends the waiting.
    ///
    /// - Parameters:
    ///   - openableModelVersions: see `FilePresenter`: no migration locks this program out while it presents the store.
    ///   - open: opens the database at the URL; the first time it may make it.
    ///   - close: closes it, all connections; what it throws fails the relocation, and the store stays open. Its task is
    ///     cancelled when whoever wanted the store gave up: it may throw then, and the store goes on being used at once.
    ///   - failed: told when the store could not be opened again after a relocation, or isn't there any more
    ///     (`GroupStoreError`, `noStore`), which is tried again; and when the agent refuses to know of this presenter
    ///     (`registration`), so that others wait for it without asking.
    ///
    /// Throws `GroupStoreError`, `FileCoordinationError`, `CancellationError`, and what `open` throws.
    public func present(
        openableModelVersions: Set<String>? = nil,
        open: @escaping @Sendable (URL) async throws -> Void,
        close: @escaping @Sendable () async throws -> Void,
        failed: @escaping @Sendable (any Error) async -> Void = { _ in }
    ) async throws -> StorePresentation {
        let presentation = StorePresentation(self, openableModelVersions, open: open, close: close, failed: failed)
        try await presentation.begin()
        return presentation
    }
}
