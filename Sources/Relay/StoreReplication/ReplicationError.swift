import LinuxSystem
import SystemPackage

/// The reasons why a store can't be replicated or a replica can't continue.
package enum ReplicationError: ActionableError, Equatable {
    /// The store can't be replicated. `object` names the obstacle.
    case unreplicable(object: String, reason: String, FilePath)
    /// The file is no replica.
    case notAReplica(FilePath)
    /// The file is a replica, and not a home.
    case isReplica(FilePath)
    /// The replica follows another stream.
    case otherStream(String, FilePath)
    /// Another program wrote to the replica.
    case diverged(tables: [String], FilePath)
    /// The replica's file was moved or removed while it was followed.
    case gone(FilePath)
    /// A batch violates its format. Nothing was changed.
    case malformedBatch(String, FilePath)
    /// A snapshot is damaged, or isn't the announced one. Nothing was changed.
    case malformedSnapshot(String, FilePath)
    /// The home's file has another format than the replica's, which SQLite can't change under its readers. `what` names
    /// it, such as the page size.
    case otherFormat(_ what: String, FilePath)
    /// There is a file where a replica should be created.
    case exists(FilePath)
    /// A program was killed in a transaction of the home. Nobody but an opener that may write rolls it back.
    case abandonedJournal(FilePath)
    /// The replica's file has several names, by hard links.
    case hardLinked(links: UInt64, FilePath)
    /// Another program follows or promotes the replica. `by` is its pid; empty if unknown.
    case inUse(by: String, FilePath)

    package var errorCode: String {
        switch self {
        case .unreplicable: "not_replicable"
        case .notAReplica: "not_a_replica"
        case .isReplica: "is_replica"
        case .otherStream: "other_stream"
        case .diverged: "diverged"
        case .gone: "replica_gone"
        case .malformedBatch: "malformed_batch"
        case .malformedSnapshot: "malformed_snapshot"
        case .otherFormat: "other_format"
        case .exists: "exists"
        case .abandonedJournal: "hot_journal"
        case .hardLinked: "hard_linked"
        case .inUse: "in_use"
        }
    }

    package var errorPath: FilePath? {
        switch self {
        case .unreplicable(_, _, let path), .notAReplica(let path), .isReplica(let path), .otherStream(_, let path),
            .diverged(_, let path), .gone(let path), .malformedBatch(_, let path), .malformedSnapshot(_, let path),
            .otherFormat(_, let path), .exists(let path), .abandonedJournal(let path),
            .hardLinked(_, let path), .inUse(_, let path):
            path
        }
    }

    package var message: String {
        switch self {
        case .unreplicable(let object, let reason, let path):
            "\(PrintablePath(path)) can't be replicated: \(PrintableText(object)): \(reason)"
        case .notAReplica(let path): "\(PrintablePath(path)) is not a replica"
        case .isReplica(let path): "\(PrintablePath(path)) is a replica of another store"
        case .otherStream(let name, let path): "\(PrintablePath(path)) follows another stream, \(PrintableText(name))"
        case .diverged(let tables, let path):
            "\(PrintablePath(path)): another program wrote to this replica: "
                + tables.map { "\(PrintableText($0))" }.joined(separator: ", ")
        case .gone(let path): "\(PrintablePath(path)): the replica was moved or removed while it was followed"
        case .malformedBatch(let what, let path): "\(PrintablePath(path)): malformed batch: \(PrintableText(what))"
        case .malformedSnapshot(let what, let path):
            "\(PrintablePath(path)): malformed snapshot: \(PrintableText(what))"
        case .otherFormat(let what, let path):
            "\(PrintablePath(path)): the home has another \(what) than this replica"
        case .exists(let path): "\(PrintablePath(path)) exists"
        case .abandonedJournal(let path):
            "\(PrintablePath(path)): a program was killed in a transaction, and the store can't be read until its hot "
                + "journal is rolled back"
        case .hardLinked(let links, let path):
            "\(PrintablePath(path)) is one file with \(links) names, and each name has a lock and a log of its own"
        case .inUse(let holder, let path):
            "\(PrintablePath(path)): another program follows or promotes this replica"
                + (holder.isEmpty ? "" : " (process \(PrintableText(holder)))")
        }
    }

    package var remedy: String {
        switch self {
        case .unreplicable: "relocate the store to where it is needed, or remove the obstacle"
        case .notAReplica: "name a store that groupstore-relay follow has created"
        case .isReplica(let path):
            "if it is to be the home from now on: groupstore-relay promote \(path.shellWord)"
        case .otherStream: "name that stream, or another place for the new replica"
        case .diverged(_, let path):
            "save what was written, move the file away and follow again; or make it a store of its own: "
                + "groupstore-relay promote \(path.shellWord)"
        case .gone: "leave it in its place; it is created again from a snapshot"
        case .malformedBatch: "see that nobody but the relay publishes to the stream; use --key"
        case .malformedSnapshot: "try again; use --key if somebody else may answer"
        case .otherFormat: "move the file away while no program has it open, and follow again"
        case .exists: "name another place, or move the file away"
        case .abandonedJournal(let path):
            "start the store's program, or open the store once: sqlite3 \(path.shellWord) .schema"
        case .hardLinked(_, let path):
            "find the other names, and remove them once no program uses them: "
                + "find \"$(stat -c %m \(path.shellWord))\" -ignore_readdir_race -xdev -samefile \(path.shellWord)"
        case .inUse: "stop that program first"
        }
    }
}
