import CLinux
import Glibc
import SystemPackage

/// Finds out through leases (fcntl(2)) whether other processes have a file open, for as long as they have.
///
/// The probe's own descriptor stays open as long: closing it would raise an event that looks like a program's. But a
/// lease is refused while any other descriptor is open, another probe's too, and two that keep theirs would wait for
/// each other. So each file has one probe at a time, in all processes.
///
/// That one is elected by a mark: an advisory lock (`F_OFD_SETLK`) on one random byte. Locks for reading suffice, which
/// a descriptor for reading permits. The mark is released with the descriptor.
package final class FileProbe: Sendable {
    /// Far from the bytes that SQLite locks (2³⁰ to 2³⁰ + 511) and beyond the end of any database.
    private static let marks: Range<off_t> = 1 << 62..<(1 << 62 + 1 << 61)

    private let locked: LockedDescriptor
    /// The identity of the open file, whatever its name stands for now.
    package let identity: FileIdentity

    /// Opens the file. Returns nil if it has a probe already; the file is closed again then.
    package init?(_ name: FilePath.Component, in directory: Directory) throws(SystemError) {
        let locked = LockedDescriptor(try directory.open(name, flags: O_RDONLY))
        identity = try locked.descriptor.status().identity
        guard Self.isElected(locked.descriptor.raw) else { return nil }
        self.locked = locked
    }

    /// True if other processes have the file open; false also if the file system has no leases.
    ///
    /// Retries for some milliseconds, because IN_CLOSE precedes the actual close, and since a process that isn't
    /// elected closes its descriptor at once.
    package var isOpenElsewhere: Bool {
        var backoff = Backoff(first: .microseconds(50), longest: .milliseconds(4))
        for _ in 0..<8 {
            if FileLease.isGranted(locked.descriptor) { return false }
            pause(backoff.next())
        }
        return !FileLease.isGranted(locked.descriptor)
    }

    /// Sets a mark. Returns true if there is no other one. On a file system without such locks each probe is elected.
    ///
    /// The check follows the mark, so that of two probes at least the later one sees the other. Of two that see each
    /// other, the lower one waits for the other to give way.
    private static func isElected(_ raw: CInt) -> Bool {
        do throws(SystemError) {
            // A mark that has won stays: no other mark needs to be set then, which others would see.
            if try isMarked(raw, marks) { return false }
            let mark = off_t.random(in: marks)
            try retrying("fcntl F_OFD_SETLK") { gs_ofd_lock(raw, Int16(F_RDLCK), mark, 1) }
            var backoff = Backoff(first: .microseconds(20), longest: .milliseconds(1))
            for _ in 0..<8 {
                if try !isMarked(raw, marks) { return true }
                if try isMarked(raw, marks.lowerBound..<mark) { return false }
                pause(backoff.next())
            }
            return false
        } catch {
            // Some program has locked the whole file.
            return error.errno != .resourceTemporarilyUnavailable && error.errno != .permissionDenied
        }
    }

    private static func isMarked(_ raw: CInt, _ range: Range<off_t>) throws(SystemError) -> Bool {
        guard !range.isEmpty else { return false }
        return try retrying("fcntl F_OFD_GETLK") {
            gs_ofd_conflict(raw, Int16(F_WRLCK), range.lowerBound, range.upperBound - range.lowerBound)
        } != 0
    }
}
