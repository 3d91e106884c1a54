import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store that has no write-ahead log at the moment, because no program has it open.
///
/// A connection of this process creates a WAL and an index, and leaves both (`SQLiteLibrary.disableCheckpoints`). If
/// nobody else has opened the store since, the WAL is checkpointed and both files are removed. An idle store is a
/// single file.
package struct TemporarySideFiles: Sendable {
    private let location: StoreLocation

    /// Returns nil if one of the two files exists. The process that created it is responsible for it.
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

    /// Checkpoints the WAL and removes both files, unless another program has opened the store. If only an agent
    /// follows the store, which holds descriptors but no connection, both files stay and the WAL is empty.
    ///
    /// This process must have closed its connections. After a failure the WAL stays, and the next program recovers it.
    package func checkpointAndRemove() {
        FileLease.ignoreBreakSignal()
        do {
            guard try location.directory.status(location.name.wal) != nil else { return }
            try WALCheckpoint.perform(location)
            try underLease {
                // Nobody has the database open, so nobody uses these files.
                guard try location.directory.status(location.name.wal)?.size == 0 else { return }
                try location.directory.removeFile(location.name.wal)
                try location.directory.removeFile(location.name.sharedMemory)
            }
        } catch {}
    }

    private struct Held: Error {}

    /// Runs `body` while nobody has the database open. The kernel may refuse the lease for an instant after the last
    /// close.
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
