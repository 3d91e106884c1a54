import FileCoordination
import FoundationEssentials
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Access of commands to a store whose history they read or write.
enum HistoryAccess {
    /// Calls `body` to write the store, under a claim if it is in a group container: nobody relocates it meanwhile.
    /// Presenters keep it open, because SQLite's own locks are enough between them. Throws as `body` does, and
    /// `FileCoordinationError`.
    static func withWritableStore<Result>(
        _ store: String, held: HeldStoreOptions? = nil, _ body: (StoreLocation) throws -> Result
    ) throws -> Result {
        let location = try held?.location(store) ?? StoreArgument(store).location()
        let container = GroupContainer(directory: location.directory)
        guard try container.existingBookkeeping() != nil else { return try body(location) }
        if try WithdrawnDatabase.isUnfinished(location.name.database, in: container) {
            throw CommandFailure(
                .busy, code: "relocating",
                "\(PrintablePath(location.path)) is being relocated, or a relocation of it was interrupted",
                remedy: "try again when it is done, or see its state: "
                    + "groupstore recover \(container.directory.path.shellWord) --dry-run")
        }
        let url = URL(filePath: location.path.string, directoryHint: .notDirectory)
        let coordinator = FileCoordinator(in: container)
        return try coordinator.coordinate(writingItemAt: url, options: .contentIndependentMetadataOnly) { _ in
            try body(location)
        }
    }

    /// Calls `body` with the store's history. Reads without leaving a trace.
    static func withHistory<Result>(
        _ store: String, held: HeldStoreOptions? = nil, _ body: (StoreHistory) throws -> Result
    ) throws -> Result {
        let location = try held?.location(store) ?? StoreArgument(store).location()
        return try StoreReader.read(location) { try body(StoreHistory($0)) }
    }

    static func badToken(_ token: String) -> CommandFailure {
        CommandFailure(
            .usage, code: "bad_token", "\(token.prefix(100)) isn't a token of a store's history",
            remedy: "use one printed by changes, history show, or a subscription with history")
    }
}
