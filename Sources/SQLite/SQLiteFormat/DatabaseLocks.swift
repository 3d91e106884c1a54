import CLinux
import Glibc
import LinuxSystem

/// SQLite's locks on a database (https://sqlite.org/lockingv3.html; their byte positions are in os.h).
package enum DatabaseLocks {
    private static let pendingByte: off_t = 0x4000_0000
    private static let sharedRange: off_t = 0x4000_0002

    /// True if a program locks out every reader. `descriptor` is open on the database and stays owned by the caller.
    package static func areExclusive(on descriptor: CInt) -> Bool {
        gs_ofd_conflict(descriptor, Int16(F_RDLCK), sharedRange, 510) == 1
            || gs_ofd_conflict(descriptor, Int16(F_RDLCK), pendingByte, 1) == 1
    }

    /// False if no program can be writing pages into the database: for that it holds PENDING or EXCLUSIVE.
    package static func mayBeExclusive(on descriptor: borrowing Descriptor) -> Bool {
        gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), sharedRange, 510) != 0
            || gs_ofd_conflict(descriptor.raw, Int16(F_RDLCK), pendingByte, 1) != 0
    }

    /// True if no program has a lock of any kind.
    package static func areFree(on descriptor: borrowing Descriptor) -> Bool {
        gs_ofd_conflict(descriptor.raw, Int16(F_WRLCK), pendingByte, 512) == 0
    }

    /// True if a program is writing or about to: it holds RESERVED, PENDING or EXCLUSIVE, which are write locks from
    /// PENDING_BYTE on. Locks of this process count too.
    package static func areHeld(on descriptor: borrowing Descriptor) -> Bool { areHeld(on: descriptor.raw) }

    /// The same of a descriptor that stays owned by the caller.
    package static func areHeld(on descriptor: CInt) -> Bool {
        gs_ofd_conflict(descriptor, Int16(F_RDLCK), pendingByte, 512) != 0
    }
}
