import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store that has no write-ahead log at the moment, because no program has it open.
///
/// Our own connection makes a log and a shared index, and leaves both (`SQLiteLibrary.leaveLogAlone`). Where still nobody else
/// has opened the store, they go again, and what the log has goes into the database: a store at rest is one file.
package struct TemporarySideFiles: Sendable {
    private let location: StoreLocation

    /// Nil where there is one of the two: whoever made it sees to it.
    package init?(_ location: StoreLocation) {
        do {
            for name in [location.name.wal, location.name.sharedMemory] {
                guard try location.directory.status(name) == nil else { return nil }
            }
        } catch {
            return nil
        }
        self.location = location
    }

    /// Brings the log into the database and removes both files, unless another program has opened the store. Where only an
    /// agent follows it, which has descriptors and no connection, both stay, the log empty.
    ///
    /// This process must have closed its connections. Whatever fails leaves a log, which the next program recovers.
    package func settle() {
        FileLease.ignoreBreakSignal()
        do {
            guard try location.directory.status(location.name.wal) != nil else { return }
            try LogCheckpoint.perform(location)
            try underLease {
                // Nobody has the database open, so nobody uses these.
                guard try location.directory.status(location.name.wal)?.size == 0 else { return }
                try location.directory.removeFile(location.name.wal)
                try location.directory.removeFile(location.name.sharedMemory)
            }
        } catch {}
    }

    private struct Held: Error {}

    /// Runs `body` where nobody has the database open. It can be refused for an instant after the last close.
    private func underLease(_ body: () throws -> Void) throws {
        let descriptor = try location.directory.open(location.name.database, flags: O_RDONLY)
        for _ in 0..<20 {
            if let lease = try FileLease(descriptor) {
                try body()
                _ = consume lease
                return
            }
            pause(.microseconds(50))
        }
        throw Held()
    }
}
