import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// SQLite's locks on a database (https://sqlite.org/lockingv3.html; their bytes are in os.h).
package enum DatabaseLocks {
    private static let pendingByte: off_t = 0x4000_0000
    private static let sharedRange: off_t = 0x4000_0002

    /// Whether a program keeps everybody else from reading. `descriptor`: of the database; it stays the caller's.
    package static func areExclusive(on descriptor: CInt) -> Bool {
        gs_ofd_conflict(descriptor, Int16(F_RDLCK), sharedRange, 510) == 1
            || gs_ofd_conflict(descriptor, Int16(F_RDLCK), pendingByte, 1) == 1
    }

    /// Whether a program is about to write, or is doing it: RESERVED, PENDING or EXCLUSIVE, which are write locks from
    /// PENDING_BYTE on. This process's own count as well.
    static func areHeld(of descriptor: borrowing Descriptor) -> Bool {
        gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), pendingByte, 512) != 0
    }
}

extension StoreLocation {
    /// Throws `StoreError.busy` while a program is in a transaction that writes: the journal is there because of it, and not
    /// because it was interrupted. This process must have no connection of its own to the store
    /// (https://sqlite.org/howtocorrupt.html, §2.2).
    package func checkNotWriting() throws {
        let descriptor = try directory.open(name.database, flags: O_RDONLY)
        if DatabaseLocks.areHeld(of: descriptor) { throw StoreError.busy(path) }
    }
}
