import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

extension StoreLocation {
    /// Throws `StoreError.busy` while a program is in a write transaction, so that the journal belongs to it and was
    /// not left by an interruption. This process must have no connection of its own to the store
    /// (https://sqlite.org/howtocorrupt.html, §2.2).
    package func checkNotWriting() throws {
        let descriptor = try directory.open(name.database, flags: O_RDONLY)
        if DatabaseLocks.areHeld(on: descriptor) { throw StoreError.busy(path) }
    }

    /// True if the rollback journal is hot and belongs to no program: its program was killed, and the next opener that
    /// may write rolls the transaction back. This process must have no connection of its own to the store.
    package func hasAbandonedJournal() throws -> Bool {
        let journal = try directory.status(name.journal)
        guard try RollbackJournal.isHot(name.journal, in: directory) else { return false }
        do { try checkNotWriting() } catch StoreError.busy { return false }
        // A transaction that has begun since has written its own.
        return try directory.status(name.journal) == journal
    }

    /// Throws `StoreError.busy` if a file other than the granted one has the name.
    package func check(_ identity: FileIdentity) throws(StoreError) {
        if let granted, granted != identity { throw .busy(path) }
    }

    /// Throws `StoreError.busy` unless this process has that file open. SQLite opens by name, and the name may be
    /// another file's by then.
    package func checkOpened(_ identity: FileIdentity?) throws(StoreError) {
        if let identity, !Descriptor.isOpen(identity) { throw .busy(path) }
    }
}
