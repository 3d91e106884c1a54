import FileCoordination
import FoundationEssentials
import LinuxSystem
import Synchronization

/// A store that this process keeps open and closes on request. Created by
/// ``SharedStore/present(openableModelVersions:open:close:failed:)``.
///
///     let presentation = try await store.present(
///         open: { url in try await database.open(url) }, close: { try await database.close() })
///     // … use the database …
///     try await presentation.end()
///
/// The closures are called one after another, never concurrently: first `open` with the store's location; `close` when
/// another process wants to move or replace the store; then `open` again with the location it has then. ``end()`` ends
/// this and releases both.
///
/// If the store is moved in a coordinated access (`FileCoordinator.item(at:didMoveTo:)`), it is opened and presented
/// at its new location.
///
/// - Important: Only the first `open` may create the store. If it existed and is gone, it isn't opened until it is
///   back.
///
/// While the store is open, no coordinated access that displaces presenters is granted, not even to a process that
/// can't ask this one. Such an access waits, and its `busy` error names this process.
public final class StorePresentation: FilePresenter {
    private let store: SharedStore
    /// The model versions that this program can open; nil for any.
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

    /// The location at which the store was last opened.
    public var url: URL { runner.url }

    /// True while the store is open; false while it is closed for another process.
    public var isOpen: Bool { runner.isOpen }

    /// Tells which processes ask this one to close the store; nil after ``end()``. The store is protected even if no
    /// process can ask.
    public var registration: FilePresenterRegistration? {
        FileCoordinator.registration(of: self, in: store.container)
    }

    /// The store's location in the group container: the item that is presented, even before the store is there, and
    /// after any moves.
    public var presentedItemURL: URL? { store.container.url(of: item) }

    var item: ClaimedItem {
        RegisteredPresenters.shared(in: store.container).registration(of: self)?.latestItem ?? store.item
    }

    /// The store under its current name; nil if it was moved into a subdirectory of the group container.
    package var presentedStore: SharedStore? { store.moved(to: item) }

    /// True if it was made by this very object, under whatever name the store is now.
    func isPresentation(of store: SharedStore) -> Bool { store === self.store }

    /// True if this is the store's presentation, under its name after any moves.
    func presents(_ store: SharedStore) -> Bool {
        if isPresentation(of: store) { return true }
        return store.currentContainer.directory.identity == self.store.currentContainer.directory.identity
            && item == store.item
    }

    /// Calls `body` once, now or on another thread: when the store is open or no longer presented.
    func whenOpened(_ body: @escaping @Sendable () -> Void) { runner.whenOpened(body) }

    func begin() async throws {
        PresentedStores.add(self)
        let seat = try await RegisteredPresenters.shared(in: store.container).add(self, in: store.container)
        if case .refused(let reason) = seat.registration { runner.report(refused: reason) }
        do {
            try await runner.begin(self)
        } catch {
            do {
                try await runner.end()
            } catch let failure {
                // A store that was opened for a caller that gave up stays open, and nobody else would report it.
                await runner.report(failure)
            }
            FileCoordinator.removeFilePresenter(self, in: store.container)
            throw error
        }
    }

    /// Closes the store and stops presenting it. Waits for work under way, except for `failed`, which may call this
    /// method.
    ///
    /// - Throws: The error of `close`. The store then stays open and presented, and this method can be called again.
    public func end() async throws { try await runner.end() }

    // MARK: FilePresenter

    /// Returns nil: the store stays open for readers, because SQLite's own locks keep readers and writers apart.
    public func relinquishPresentedItemToReader() async throws -> Reacquirer? {
        nil
    }

    /// Closes the store, and returns a closure that opens it again. Throws the error of `close`.
    public func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        try await runner.relinquish()
        return { [runner] in runner.reacquire() }
    }

    /// Has sequences of the store's changes follow it to its new name.
    public func presentedItemDidMove(to newURL: URL) async { PresentedStores.placesChanged() }

    /// Reports a refused registration to `failed`.
    public func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async {
        if case .refused(let reason) = registration { runner.report(refused: reason) }
    }
}

extension SharedStore {
    /// Opens the store and presents it until ``StorePresentation/end()``.
    ///
    /// The store is opened even if no agent serves the group, and registered as soon as there is one. Cancelling the
    /// task ends the waiting.
    ///
    ///     let presentation = try await store.present(
    ///         open: { url in try await database.open(url) }, close: { try await database.close() })
    ///
    /// - Important: `close` must close all connections to the database. A connection left open holds up the
    ///   relocation.
    ///
    /// - Parameters:
    ///   - openableModelVersions: See `FilePresenter`. While this program presents the store, no migration makes it a
    ///     version that the program can't open.
    ///   - open: Opens the database at the URL. Only the first call may create it.
    ///   - close: Closes the database. An error that it throws fails the relocation, and the store stays open. Its task
    ///     is cancelled if the process that wanted the store gives up; it may throw then, and the store stays in use.
    ///   - failed: Called with an error that doesn't end the presentation: the store couldn't be opened again after a
    ///     relocation, or is gone (``GroupStoreError``, `noStore`), which is retried; or the agent refuses to register
    ///     this presenter (``StorePresentation/registration``), so that other processes wait without asking.
    /// - Throws: ``GroupStoreError``, `FileCoordinationError`, `CancellationError`, and the error of `open`.
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
