import CLinux
import Glibc
import SystemPackage

/// Advisory locks on byte ranges of one of this package's own files, held by one open file description (`F_OFD_SETLK`
/// of fcntl(2)). They are released with this object, or when the process ends. Ranges may lie beyond the file's end.
///
/// A forked child shares the description, and thus the locks, until it closes it or runs another program.
package final class RangeLocks: Sendable {
    package enum Kind: Sendable {
        /// Any number of descriptions may hold it at once. A descriptor open for reading suffices.
        case shared
        /// Needs a descriptor open for writing.
        case exclusive
    }

    private let locked: LockedDescriptor
    /// The identity of the open file, whatever its name stands for now.
    package let identity: FileIdentity

    package init(_ descriptor: consuming Descriptor) throws(SystemError) {
        identity = try descriptor.status().identity
        locked = LockedDescriptor(descriptor)
    }

    /// Acquires a lock. Returns false if another description's lock conflicts. Does nothing for an empty range.
    package func lock(_ kind: Kind, _ range: Range<Int64>) throws(SystemError) -> Bool {
        guard !range.isEmpty else { return true }
        do {
            try set(Int16(kind == .shared ? F_RDLCK : F_WRLCK), range)
            return true
        } catch {
            if error.errno == .resourceTemporarilyUnavailable || error.errno == .permissionDenied { return false }
            throw error
        }
    }

    package func unlock(_ range: Range<Int64>) {
        // Unlocking fails only if the kernel can't split a range for lack of memory. Closing releases all ranges.
        try? set(Int16(F_UNLCK), range)
    }

    private func set(_ type: Int16, _ range: Range<Int64>) throws(SystemError) {
        let raw = locked.descriptor.raw
        try retrying("fcntl F_OFD_SETLK") {
            gs_ofd_lock(raw, type, off_t(range.lowerBound), off_t(range.upperBound - range.lowerBound))
        }
    }
}
