import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A request: the store, the group container, and how to handle special cases.
package struct RelocationRequest: Sendable {
    package enum ConflictPolicy: String, Sendable, CaseIterable {
        /// Change nothing, and describe both stores.
        case refuse
        /// Archive the legacy store.
        case keepGroup = "keep-group"
        /// Archive the group's store, and relocate the legacy one.
        case keepLegacy = "keep-legacy"
        /// Put the rows of both into one store, and archive both.
        case merge
    }

    package enum IncompatiblePolicy: String, Sendable, CaseIterable {
        /// Change nothing, and report the reason.
        case refuse
        /// Archive the store, and put another one in its place.
        case setAside = "set-aside"
    }

    /// The legacy store's main database. It may not exist.
    package var source: FilePath
    /// The group container's directory. It must exist.
    package var group: FilePath
    /// The group's identifier, as presenters know it; nil: its directory's path.
    package var identifier: GroupIdentifier?
    /// The groups whose presenters can be asked, by their directories. The source may be in one of them.
    package var knownGroups: [FileIdentity: GroupIdentifier] = [:]
    /// The store's name in the group container; nil: its current name.
    package var name: FilePath.Component?
    package var onConflict: ConflictPolicy = .refuse
    /// Merges two stores in conflict, for the policy `merge`.
    package var combination: (any StoreCombination)?
    /// What becomes of the old place; nil: a link to the new one, unless those who open the store know it
    /// (`Relocation.choosingRetirement`).
    package var retirement: Transfer.Retirement? = .delete
    /// The longest wait for programs that have the store open, and for another relocation of the group.
    package var deadline: Duration = .seconds(30)
    /// The longest wait for presenters and other claims, before `deadline` starts; nil: part of `deadline`.
    package var claimDeadline: Duration?
    /// Move a file that isn't readable as a database, byte by byte.
    package var opaque = false
    /// Proceed on a file system without leases, where nothing proves that the store is closed.
    package var assumeClosed = false
    /// The time for programs that looked up the old name before it was withdrawn to finish opening it.
    package var gracePeriod = OpenerGracePeriod.standard

    /// A change of the store's content as part of the relocation; nil for none.
    package var transform: (any StoreTransform)?
    /// Creates the replacement for a store that `transform` can't change and that is archived; nil: such a store is
    /// refused.
    package var replacement: (any StoreReplacement)?
    /// The journal mode at the destination; nil: unchanged.
    package var journalMode: DatabaseHeader.JournalMode?

    /// The file and directory that the requester meant, if it said so. Other files at these paths are left alone.
    package var expected: Expectation?

    package struct Expectation: Sendable {
        package var source: FileIdentity?
        package var group: FileIdentity?

        package init(source: FileIdentity?, group: FileIdentity?) {
            self.source = source
            self.group = group
        }
    }

    package init(source: FilePath, group: FilePath) {
        self.source = source
        self.group = group
    }

}

/// The result of a successful relocation.
package struct RelocationSummary: Sendable {
    package enum Outcome: String, Sendable {
        case relocated
        case alreadyRelocated = "already_relocated"
        case nothingToDo = "nothing_to_do"
        /// The store stayed in place and its content was changed.
        case migrated
        /// The store couldn't be changed and was archived; another one has its place.
        case setAside = "set_aside"
        /// A relocation was undone.
        case undone
        /// An archived store was restored.
        case restored
        /// The rows of both stores are in the group's.
        case merged
    }

    package var outcome: Outcome
    package var from: FilePath
    package var to: FilePath
    /// Nil if no store was moved.
    package var method: Transfer.Method?
    package var bytes: Int64 = 0
    /// The result of the transform, if the content was changed.
    package var transformed: TransformedStore?
    /// The store that was set aside because it couldn't be changed.
    package var setAside: SetAsideStore?
    /// The content that the transform removes.
    package var losses = RemovedContent.none
    /// The archive that keeps the original store because of those losses.
    package var archive: FilePath?
    /// What a merge did or would do.
    package var merge: MergeReport?
    /// The archives of a merge's originals.
    package var mergeArchives: MergeArchives?
    /// Notes for the user: what was archived and where, what was found unfinished.
    package var notes: [String] = []

    package init(_ outcome: Outcome, from: FilePath, to: FilePath) {
        self.outcome = outcome
        self.from = from
        self.to = to
    }
}

/// The failure of a relocation. Everything is where it was.
package struct RelocationFailure: ActionableError {
    package enum Kind: Sendable {
        /// Both places hold a store with content of its own.
        case conflict
        /// A program has the store open, or another relocation is in progress: retry.
        case busy
        /// The data is invalid or unsuitable.
        case badData
        /// The place is unusable: read-only, full, on another machine or missing.
        case unusablePlace
        /// Another user owns the files, or permission is missing.
        case notPermitted
        /// A system or SQLite call failed midway.
        case failed
        /// The wait was cancelled.
        case interrupted
    }

    package var kind: Kind
    /// A stable word for scripts, such as `hard_linked`.
    package var code: String
    package var message: String
    package var remedy: String
    package var holders: [FileHolder] = []
    /// True if the store's content can't be changed into what was requested, and no retry or other user would help.
    package var isIncompatible = false
    /// Both stores, if they are in conflict.
    package var sides: [ConflictSide] = []
    /// The error that caused it; nil if the relocation itself refused.
    package var underlyingError: (any Error)?

    package var errorCode: String { code }

    package init(_ kind: Kind, code: String, _ message: String, remedy: String, underlying: (any Error)? = nil) {
        self.kind = kind
        self.code = code
        self.message = message
        self.remedy = remedy
        underlyingError = underlying
    }

    /// Wraps an error that has a remedy. `context` precedes its message.
    package init(_ kind: Kind, _ error: any ActionableError, context: String = "") {
        self.init(
            kind, code: error.errorCode, context + error.fullMessage, remedy: error.remedy, underlying: error)
    }
}

/// One of two stores in conflict, described so that a person can choose.
package struct ConflictSide: Sendable {
    package enum Role: String, Sendable {
        case legacy, group
    }

    package var role: Role
    package var path: FilePath
    /// Modification time, in nanoseconds since 1970.
    package var modified: Int64
    /// Size of the database and its write-ahead log, in bytes.
    package var bytes: Int64
    package var rows: [(table: String, count: Int64)]
    package var storeUUID: String?
    /// Core Data's model version identifiers.
    package var modelIdentifiers: [String]
}

/// A step of a relocation, for a progress bar or a log.
package enum RelocationEvent: Sendable {
    /// The plan in one sentence, with the number of bytes to copy.
    case plan(String, bytesToCopy: Int64)
    /// An interrupted transfer was found and handled, as this sentence says.
    case recovered(String)
    case waiting(for: [FileHolder])
    case copied(bytes: Int64, of: Int64)
    /// The progress of the transform from 0 to 1, and its current activity.
    case transforming(fraction: Double, activity: String)
    case published
    /// What a merge is about to do.
    case merging(MergeReport)
    /// A note for the user about something that didn't stop the relocation.
    case note(String)
}

/// Closes and reopens a relocation's stores in this process.
package protocol StoreOpener: AnyObject, Sendable {
    /// Closes every descriptor of the store. It must stay closed at least until `reacquire`.
    func relinquish(_ store: FilePath)
    func reacquire(_ store: FilePath)
}
