import CLinux
import Glibc
import LinuxSystem

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
    package static func areHeld(of descriptor: borrowing Descriptor) -> Bool {
        gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), pendingByte, 512) != 0
    }
}
