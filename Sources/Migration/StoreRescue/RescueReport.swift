import LinuxSystem
import SQLiteStore
import StoreHazards
import StoreRelocation
import SystemPackage

/// What a rescue found, and what it did or would do.
package struct RescueReport: Sendable {
    package enum Outcome: String, Sendable {
        /// No process has a lost file of the store open.
        case nothingToDo = "nothing_to_do"
        /// The store has the rows of all branches.
        case rescued
        /// The branches are copied, and not joined.
        case copied
    }

    /// A branch as it was copied.
    package struct Branch: Sendable {
        /// The processes that have its files open; none for a copy that an earlier rescue saved.
        package let holders: [FileHolder]
        /// The hazard's code, or `archived` for a copy that an earlier rescue saved.
        package let code: String
        /// The processes that have or had its files open, in one phrase.
        package let subject: String
        /// The commits in its log.
        package var commits = 0
        /// The time of the last write to its files, in nanoseconds since 1970; 0 for an archived one.
        package var lastWrite: Int64 = 0
        /// How the branch differs from the store at the name, by table: `came` counts the rows that only the branch
        /// has, `went` those that only the store has. Nil if nothing is at the name.
        package let changes: ContentChanges?
        /// True if an earlier rescue has joined it, and its process has committed nothing since.
        package let isJoined: Bool
        package var archive: FilePath?
        /// The place of the copy that the next rescue finds.
        package var copy: FilePath?
        /// Why it can't be joined: the copy then has its files as they were.
        package var damage: String?
    }

    package var outcome = Outcome.nothingToDo
    package var branches: [Branch] = []
    package var merge: MergeReport?
    /// The archive of the store as it was at its name; nil if there was none.
    package var archive: FilePath?
    /// The hazards that are left: processes that still have their lost files open.
    package var remaining: [StoreHazard] = []
    package var notes: [String] = []
}
