import FileCoordination
import FoundationEssentials
import GroupContainer
import LinuxSystem
import Synchronization

/// A store that this process keeps open, and lets go of when it is asked.
///
/// `close` and `open` are called one after another, never two at once: `open` first, with where the store is; `close`
/// when somebody wants to move or replace it; `open` again, with where it is then. Ended by `end`.
public final class StorePresentation: FilePresenter {
    private struct State {
        var url: URL
        var isOpen = false
        var isEnded = false
    }

    private let store: SharedStore
    public let openableModelVersions: Set<String>?
    private let open: @Sendable (URL) async throws -> Void
    private let close: @Sendable () async throws -> Void
    private let failed: @Sendable (any Error) async -> Void
    private let state: Mutex<State>

    /// How long one attempt to find the store waits for a relocation under way.
    private static let patience = Duration.seconds(30)

    init(
        _ store: SharedStore, _ versions: Set<String>?, open: @escaping @Sendable (URL) async throws -> Void,
        close: @escaping @Sendable () async throws -> Void,
        failed: @escaping @Sendable (any Error) async -> Void
    ) {
        self.store = store
        openableModelVersions = versions
        self.open = open
        self.close = close
        self.failed = failed
        state = Mutex(State(url: store.url))
    }

    /// Where the store was opened last.
    public var url: URL { state.withLock { $0.url } }

    /// False while it has let go.
    public var isOpen: Bool { state.withLock { $0.isOpen } }

    /// The place in the group container, which it is known by even before it is there.
    public var presentedItemURL: URL? { store.groupURL }

    func begin() async throws {
        try await FileCoordinator.addFilePresenter(self, in: store.container)
        do {
            try await openWhereItIs()
        } catch {
            FileCoordinator.removeFilePresenter(self, in: store.container)
            throw error
        }
    }

    /// Closes the store, and presents it no longer.
    public func end() async throws {
        FileCoordinator.removeFilePresenter(self, in: store.container)
        let wasOpen = state.withLock { state in
            defer { state.isOpen = false }
            state.isEnded = true
            return state.isOpen
        }
        if wasOpen { try await close() }
    }

    // MARK: FilePresenter

    public func relinquishPresentedItemToReader() async throws -> Reacquirer? {
        // SQLite's own locks keep readers and writers of a store apart.
        nil
    }

    public func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        if isOpen {
            try await close()
            state.withLock { $0.isOpen = false }
        }
        return { [self] in await reopen() }
    }

    /// Tries until it is open again: an app that lost its store would be worse off than one that waits.
    private func reopen() async {
        var wait = Duration.milliseconds(20)
        while !state.withLock({ $0.isEnded || $0.isOpen }) {
            do {
                return try await openWhereItIs()
            } catch {
                await failed(error)
                // A task of its own: where this one is cancelled, the store comes back all the same, and not in a tight loop.
                await Task { [wait] in try? await Task.sleep(for: wait) }.value
                wait = min(wait * 2, .seconds(2))
            }
        }
    }

    private func openWhereItIs() async throws {
        let url = try await SystemThread.run(name: "gs-find") { [store] in
            try store.settledURL(Deadline(after: Self.patience))
        }
        // Whoever waits for the store goes on inside `open`, and may ask where it is.
        state.withLock { $0.url = url }
        try await open(url)
        state.withLock { $0.isOpen = true }
    }
}

extension SharedStore {
    /// Opens the store and keeps it presented until `end` of what is returned. Without an agent it is opened all the
    /// same, and presented as soon as there is one.
    ///
    /// - Parameters:
    ///   - openableModelVersions: see `FilePresenter`: no migration locks this program out while it presents the store.
    ///   - open: opens the database at the URL.
    ///   - close: closes it, all connections; what it throws fails the relocation, and the store stays open.
    ///   - failed: told when the store could not be opened again after a relocation; it is tried again.
    ///
    /// Throws `GroupStoreError`, `FileCoordinationError`, and what `open` throws.
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
