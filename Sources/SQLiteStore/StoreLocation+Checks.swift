import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

extension StoreLocation {
    /// Throws `StoreError.busy` while a program is in a transaction that writes: the journal is there because of it, and not
    /// because it was interrupted. This process must have no connection of its own to the store
    /// (https://sqlite.org/howtocorrupt.html, §2.2).
    package func checkNotWriting() throws {
        let descriptor = try directory.open(name.database, flags: O_RDONLY)
        if DatabaseLocks.areHeld(of: descriptor) { throw StoreError.busy(path) }
    }

    /// Throws `StoreError.busy` where another file than the granted one has the name.
    package func check(_ identity: FileIdentity) throws(StoreError) {
        if let granted, granted != identity { throw .busy(path) }
    }

    /// SQLite opens by name what may be another file by then. Throws `StoreError.busy` unless this process has that one
    /// open.
    package func checkOpened(_ identity: FileIdentity?) throws(StoreError) {
        if let identity, !Descriptor.isOpen(identity) { throw .busy(path) }
    }
}
