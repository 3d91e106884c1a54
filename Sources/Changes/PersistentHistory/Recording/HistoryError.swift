import LinuxSystem
import SystemPackage

/// The reasons why a store's history can't be used.
package enum HistoryError: ActionableError, Equatable {
    /// The store keeps no history.
    case disabled(FilePath)
    /// Core Data keeps the history; only Core Data and its app write it.
    case ownedByCoreData(FilePath)
    /// A newer groupstore created the history.
    case newer(version: Int64, FilePath)
    /// The triggers would keep programs from writing the table; `message` is SQLite's.
    case unusable(table: String, message: String, FilePath)
    /// An object that isn't groupstore's has a name that history needs.
    case foreign(String, FilePath)
    /// A subscriber hasn't acknowledged changes that would be purged.
    case unacknowledged(subscriber: String, FilePath)
    /// The schema has changed, and changes of the table may not be recorded since.
    case outdated(table: String, FilePath)
    /// A row is longer than one answer may be.
    case rowTooLarge(table: String, bytes: Int, FilePath)
    /// The store is a replica: its history is its home's, and nobody but its follower changes it.
    case replica(FilePath)

    package var errorCode: String {
        switch self {
        case .disabled: "no_history"
        case .ownedByCoreData: "core_data_history"
        case .newer: "newer_history"
        case .unusable: "unusable_table"
        case .foreign: "foreign_table"
        case .unacknowledged: "unacknowledged"
        case .outdated: "outdated_history"
        case .rowTooLarge: "row_too_large"
        case .replica: "is_replica"
        }
    }

    package var errorPath: FilePath? {
        switch self {
        case .disabled(let path), .ownedByCoreData(let path), .newer(_, let path), .unusable(_, _, let path),
            .foreign(_, let path), .unacknowledged(_, let path), .outdated(_, let path), .rowTooLarge(_, _, let path),
            .replica(let path):
            path
        }
    }

    package var message: String {
        switch self {
        case .disabled(let path): "\(PrintablePath(path)) keeps no history"
        case .ownedByCoreData(let path):
            "\(PrintablePath(path)): Core Data keeps this store's history; groupstore only reads it"
        case .newer(let version, let path):
            "\(PrintablePath(path)) has a history of format \(version), which this groupstore doesn't know"
        case .unusable(let table, let message, let path):
            "\(PrintablePath(path)): with history, the table \(table) could not be written: \(message)"
        case .foreign(let name, let path):
            "\(PrintablePath(path)) contains \(name), which isn't groupstore's"
        case .unacknowledged(let subscriber, let path):
            "\(PrintablePath(path)): the subscriber \(subscriber) hasn't acknowledged all changes"
        case .outdated(let table, let path):
            "\(PrintablePath(path)): the schema has changed, and changes of the table \(table) may not be recorded since"
        case .rowTooLarge(let table, let bytes, let path):
            "\(PrintablePath(path)): a changed row of the table \(table) takes \(bytes) bytes, more than one answer may"
        case .replica(let path):
            "\(PrintablePath(path)) is a replica of another store: its history is that store's"
        }
    }

    package var remedy: String {
        switch self {
        case .disabled(let path), .outdated(_, let path): "groupstore history enable \(path.shellWord)"
        case .ownedByCoreData: "let the app purge it: NSPersistentHistoryChangeRequest.deleteHistory(before:)"
        case .newer: "install a groupstore at least as new as the one that enabled history"
        case .unusable: "check the table's triggers and indexes: they can't call functions that an app defines"
        case .foreign: "rename it"
        case .unacknowledged(let subscriber, let path):
            "if it is gone for good: groupstore history purge \(path.shellWord) --forget-subscriber "
                + FilePath(subscriber).shellWord
        case .rowTooLarge(_, _, let path):
            "read it with a command, which has no such limit: groupstore changes \(path.shellWord) --values"
        case .replica(let path):
            "do it at its home; if this is to be a store of its own: groupstore-relay promote \(path.shellWord)"
        }
    }
}
