import LinuxSystem
import PersistentStore
import SystemPackage

/// What a look at a store found.
package struct Observation: Sendable, Equatable {
    package enum Finding: Sendable, Equatable {
        /// Nothing was committed since the last look.
        case unchanged
        /// At least one transaction was committed, and a reader that opens the store now finds it.
        case changed
        /// What was known of the store is worth nothing: it was replaced, appeared, vanished, or couldn't be read.
        case discontinued(Reason)
    }

    package enum Reason: String, Sendable {
        case replaced, appeared, vanished, overflow, unreadable
    }

    package let finding: Finding
    /// When to look again although no event may come, since a commit may be on its way; nil: an event will tell.
    package let lookAgain: Duration?

    package init(_ finding: Finding, lookAgain: Duration? = nil) {
        self.finding = finding
        self.lookAgain = lookAgain
    }
}

/// Watches one store for other processes' commits, without a SQLite connection, a lock or a trace. One thread's.
package final class StoreObserver {
    package let directory: FilePath
    package let name: StoreName

    package init(directory: FilePath, name: StoreName) {
        self.directory = directory
        self.name = name
    }

    /// Takes what is there now as known. Until the first `attach`, and after `letGo`, nothing is open.
    package func attach() {}

    /// Something happened to one of the store's parts. Cheap; `look` judges.
    package func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool) {}

    /// Compares the store with what is known of it.
    package func look() -> Observation { Observation(.unchanged) }

    /// Closes every descriptor and mapping: somebody here is about to open the store through SQLite, or to move it.
    package func letGo() {}
}
