import FileCoordination
import FoundationEssentials
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// How the commands reach a store whose history they read or write.
enum HistoryAccess {
    /// Writes the store under a claim where it is in a group container: nobody relocates it meanwhile. Presenters keep
    /// it open: SQLite's own locks are enough between them. Throws as `body` does, and `FileCoordinationError`.
    static func writing<Result>(
        _ store: String, held: HeldStoreOptions? = nil, _ body: (StoreLocation) throws -> Result
    ) throws -> Result {
        let location = try held?.location(store) ?? StoreArgument(store).location()
        let container = GroupContainer(directory: location.directory)
        guard try container.existingBookkeeping() != nil else { return try body(location) }
        if try WithdrawnDatabase.isUnfinished(location.name.database, in: container) {
            throw CommandFailure(
                .busy, code: "relocating",
                "\(PrintablePath(location.path)) is being relocated, or that was interrupted",
                remedy: "try again when it is done; groupstore recover shows what it is")
        }
        let url = URL(filePath: location.path.string, directoryHint: .notDirectory)
        let coordinator = FileCoordinator(in: container)
        return try coordinator.coordinate(writingItemAt: url, options: .contentIndependentMetadataOnly) { _ in
            try body(location)
        }
    }

    /// Reads without a trace.
    static func reading<Result>(
        _ store: String, held: HeldStoreOptions? = nil, _ body: (StoreHistory) throws -> Result
    ) throws -> Result {
        let location = try held?.location(store) ?? StoreArgument(store).location()
        return try StoreReader.read(location) { try body(StoreHistory($0)) }
    }

    static func badToken(_ token: String) -> CommandFailure {
        CommandFailure(
            .usage, code: "bad_token", "\(token.prefix(100)) is no token of a store's history",
            remedy: "take one from changes, history show, or an event of a subscription with history")
    }

    static func run(_ output: Output, changing: Bool = false, _ body: () throws -> Void) throws {
        try reporting(output, changing: changing) {
            do {
                try body()
            } catch let error as HistoryError {
                throw CommandFailure(error)
            } catch let error as StoreHistory.Discontinuity {
                throw CommandFailure(
                    .badData, code: error.rawValue, "the token is not one of this store's history any more",
                    remedy: "read the store anew, and take a token of now")
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
            case .coreDatas: (.badData, "core_data_history")
            case .newer: (.badData, "newer_history")
            case .unusable: (.badData, "unusable_table")
            case .foreign: (.badData, "foreign_table")
            case .unacknowledged: (.busy, "unacknowledged")
            }
        self.init(status, code: code, "\(error)", remedy: error.remedy)
    }
}
