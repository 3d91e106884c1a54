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
                remedy: "try again when it is done; groupstore recover shows its state")
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

    static func run(_ output: Output, changing: Bool = false, _ body: () throws -> Void) throws {
        try reporting(output, changing: changing) {
            do {
                try body()
            } catch let error as HistoryError {
                throw CommandFailure(error)
            } catch let error as StoreHistory.Discontinuity {
                throw CommandFailure(
                    .badData, code: error.rawValue, "the token is no longer valid in this store's history",
                    remedy: "read the store again, and continue with the current token")
            } catch let error as FileCoordinationError {
                throw CommandFailure(
                    error.code == .notWritable ? .notPermitted : .busy, code: error.code.rawValue, error.message,
                    remedy: error.remedy)
            } catch let error as StoreError {
                throw CommandFailure(error)
            } catch let error as SystemError {
                throw CommandFailure(error)
            } catch let error as ConfigurationError {
                throw CommandFailure(error)
            }
        }
    }
}

extension CommandFailure {
    init(_ error: HistoryError) {
        let (status, code): (ExitStatus, String) =
            switch error {
            case .disabled: (.badData, "no_history")
            case .ownedByCoreData: (.badData, "core_data_history")
            case .newer: (.badData, "newer_history")
            case .unusable: (.badData, "unusable_table")
            case .foreign: (.badData, "foreign_table")
            case .unacknowledged: (.busy, "unacknowledged")
            }
        self.init(status, code: code, "\(error)", remedy: error.remedy)
    }
}
