import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// What is asked for: this store, into that group container, and what to do where it isn't plain.
package struct RelocationRequest: Sendable {
    package enum ConflictPolicy: String, Sendable, CaseIterable {
        /// Change nothing, describe both.
        case refuse
        /// Archive the legacy store.
        case keepGroup = "keep-group"
        /// Archive the group's store, and relocate the legacy one.
        case keepLegacy = "keep-legacy"
    }

    package enum IncompatiblePolicy: String, Sendable, CaseIterable {
        /// Change nothing, say why.
        case refuse
        /// Archive the store, and give its place to another one.
        case setAside = "set-aside"
    }

    /// The legacy store's main database; may not exist.
    package var source: FilePath
    /// The group container's directory; must exist.
    package var group: FilePath
    /// What presenters call the group; nil: its directory.
    package var identifier: GroupIdentifier?
    /// The store's name in the group container; nil: the one it has.
    package var name: FilePath.Component?
    package var onConflict: ConflictPolicy = .refuse
    package var retirement: Transfer.Retirement = .delete
    /// How long to wait for those who have the store open, and for another relocation of the group.
    package var deadline: Duration = .seconds(30)
    /// How long presenters and other claimants get before that; nil: it is part of `deadline`.
    package var claimDeadline: Duration?
    /// Move what isn't readable as a database, byte by byte.
    package var opaque = false
    /// Go on where the file system has no leases: nobody proves then that the store is closed.
    package var assumeClosed = false
    /// How long openers that looked up the old name before it was withdrawn are given to finish opening it.
    package var drain = OpenerGracePeriod.standard

    /// A change of the store's content on the way; nil for none.
    package var transform: (any StoreTransform)?
    /// What takes the place of a store that `transform` can't change, which goes to the archive; nil: it is refused.
    package var replacement: (any StoreReplacement)?
    /// How the store keeps its log where it arrives; nil: as it did.
    package var journalMode: DatabaseHeader.JournalMode?

    /// Which file and directory are meant, where whoever asked has said so: others under these paths are left alone.
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

    /// What becomes of the old place where what is published lacks something: the store as it was is kept.
    func retirement(after losses: RemovedContent) -> Transfer.Retirement {
        losses.isEmpty || retirement == .symlink ? retirement : .archive
    }
}

/// How a relocation ended well.
package struct RelocationSummary: Sendable {
    package enum Outcome: String, Sendable {
        case relocated
        case alreadyRelocated = "already_relocated"
        case nothingToDo = "nothing_to_do"
        /// The store stayed at its place, and its content was changed.
        case migrated
        /// The store couldn't be changed and is in the archive; another one has its place.
        case setAside = "set_aside"
        /// A relocation was taken back.
        case undone
    }

    package var outcome: Outcome
    package var from: FilePath
    package var to: FilePath
    /// Nil where no store was moved.
    package var method: Transfer.Method?
    package var bytes: Int64 = 0
    /// What its content was and is, where it was changed.
    package var transformed: TransformedStore?
    /// What was put aside because it couldn't be changed.
    package var setAside: SetAsideStore?
    /// What the change removes.
    package var losses = RemovedContent.none
    /// Where the store is kept as it was, because of that.
    package var archive: FilePath?
    /// What a person should know: what was archived and where, what was found unfinished.
    package var notes: [String] = []

    package init(_ outcome: Outcome, from: FilePath, to: FilePath) {
        self.outcome = outcome
        self.from = from
        self.to = to
    }
}

/// Why a relocation did not happen. Everything is where it was.
package struct RelocationFailure: Error, Sendable {
    package enum Kind: Sendable {
        /// Both places hold a store with content of its own.
        case conflict
        /// Somebody has it open, or another relocation is under way: try again.
        case busy
        /// The data is not what it should be.
        case badData
        /// The place won't do: read-only, full, on another machine, not there.
        case unusablePlace
        /// Another owner, or no permission.
        case notPermitted
        /// A system or SQLite call failed in the middle.
        case failed
        /// Somebody ended the waiting.
        case interrupted
    }

    package var kind: Kind
    /// A word that scripts can rely on, such as `hard_linked`.
    package var code: String
    package var message: String
    package var remedy: String
    package var holders: [FileHolder] = []
    /// The store's content can't become what was asked for, whoever asks and however often.
    package var isIncompatible = false
    /// Both stores, where they are in conflict.
    package var sides: [ConflictSide] = []

    package init(_ kind: Kind, code: String, _ message: String, remedy: String) {
        self.kind = kind
        self.code = code
        self.message = message
        self.remedy = remedy
    }
}

/// One of two stores that are in conflict, described so that a person can choose.
package struct ConflictSide: Sendable {
    package enum Role: String, Sendable {
        case legacy, group
    }

    package var role: Role
    package var path: FilePath
    /// Nanoseconds since 1970.
    package var modified: Int64
    /// Bytes of the database and its write-ahead log.
    package var bytes: Int64
    package var rows: [(table: String, count: Int64)]
    package var storeUUID: String?
    /// Core Data's model version identifiers.
    package var modelIdentifiers: [String]
}

/// What happens meanwhile, for a progress bar or a log.
package enum RelocationEvent: Sendable {
    /// What was decided, in a sentence, with the bytes that will be copied.
    case plan(String, bytesToCopy: Int64)
    /// An interrupted transfer was found, and this was done about it.
    case recovered(String)
    case waiting(for: [FileHolder])
    case copied(bytes: Int64, of: Int64)
    /// From 0 to 1, and what is being done to the copy.
    case transforming(fraction: Double, doing: String)
    case published
    /// Something a person should know, though it went on.
    case note(String)
}

/// The parts of this process that have a relocation's stores open let go of them for its time.
package protocol StoreOpener: AnyObject, Sendable {
    /// Closes every descriptor of the store, and doesn't open it until `reacquire`, at the earliest.
    func relinquish(_ store: FilePath)
    func reacquire(_ store: FilePath)
}
