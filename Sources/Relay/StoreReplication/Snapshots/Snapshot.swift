import Glibc
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import Synchronization
import SystemPackage

/// A consistent copy of a home's store, in a file: the beginning of a replica.
///
/// The home makes it with `make(of:at:)`, and sends `size`, `sha256`, `upto` and `schema` first, then the chunks. The
/// follower writes them to a file of its own, and creates the same value with that file's path.
package struct Snapshot: Sendable, Equatable {
    package let path: FilePath
    /// The file's size, in bytes.
    package let size: Int64
    /// The SHA-256 of its chunks' SHA-256s (`SnapshotDigest`), in hexadecimal.
    package let sha256: String
    /// The size of the chunks for that, in bytes.
    package let chunkSize: Int
    /// The token of the last change that is in it.
    package let upto: HistoryToken
    /// The state of the home's schema. The file itself may have another version of it.
    package let schema: String
    /// The digest of its schema.
    package var schemaDigest: String { RecordedPosition.schemaDigest(of: schema) }
    /// The digest computed while writing; nil: read the file.
    package var written: String?

    /// The size that chunks have if the broker accepts it, in bytes.
    package static let usualChunkSize = 512 << 10

    package init(
        path: FilePath, size: Int64, sha256: String, chunkSize: Int = Self.usualChunkSize, upto: HistoryToken,
        schema: String
    ) {
        (self.path, self.size, self.sha256, self.chunkSize) = (path, size, sha256, chunkSize)
        (self.upto, self.schema) = (upto, schema)
    }

    /// The number of snapshots that this process has made of each store. A snapshot may have content that no batch
    /// carries: `user_version` may differ at that time, and be the former one again before the next batch.
    static let made = Mutex<[FilePath: Int]>([:])

    /// Copies a store to a new file at `path`, without its named subscribers. Throws as `ReplicationSource.init` does,
    /// and `ReplicationError.exists`; no file is left then.
    package static func make(of location: StoreLocation, at path: FilePath) throws -> Snapshot {
        try makeWithDigest(of: location, at: path).snapshot
    }

    /// Makes a snapshot like `make(of:at:)`, and also returns the digests of its chunks.
    package static func makeWithDigest(
        of location: StoreLocation, at path: FilePath
    ) throws -> (snapshot: Snapshot, digest: SnapshotDigest) {
        let file = try SnapshotFile(creating: path)
        defer { made.withLock { $0[location.path, default: 0] += 1 } }
        do {
            let (upto, schema) = try StoreReader.read(location) { reader in
                let store = try ReplicableStore(reader)
                try file.empty()
                try reader.copy(to: path)
                return (try StoreHistory(reader).current(), store.schema)
            }
            try clean(path)
            // Nothing is synced: after a power failure, the home makes another one.
            let digest = try SnapshotDigest(of: path, chunkSize: usualChunkSize)
            let snapshot = Snapshot(
                path: path, size: digest.size, sha256: digest.sha256, upto: upto, schema: schema)
            return (snapshot, digest)
        } catch {
            file.remove()
            throw error
        }
    }

    /// Removes the content that belongs to the home alone. The file gets a rollback journal's header, so that it needs
    /// no log beside it.
    private static func clean(_ path: FilePath) throws {
        let database = try StoreWriter(path)
        try database.execute("PRAGMA journal_mode = DELETE")
        try database.execute("PRAGMA synchronous = OFF")
        try database.execute(script: "BEGIN; DELETE FROM GS_SUBSCRIBER; DELETE FROM GS_REPLACED; COMMIT")
    }

    /// The number of chunks of this size.
    package func chunkCount(size chunkSize: Int) -> Int { Int((size + Int64(chunkSize) - 1) / Int64(chunkSize)) }

    /// Reads a chunk; only the last one is shorter than `chunkSize`. Throws `SystemError`;
    /// `ReplicationError.malformedSnapshot` if there is no such chunk, or the file is shorter than it was.
    package func chunk(_ index: Int, size chunkSize: Int) throws -> [UInt8] {
        guard index >= 0, index < chunkCount(size: chunkSize) else {
            throw ReplicationError.malformedSnapshot("it has no chunk \(index)", path)
        }
        let offset = Int64(index) * Int64(chunkSize)
        let count = Int(min(Int64(chunkSize), size - offset))
        let bytes = try Descriptor(opening: path, flags: O_RDONLY | O_NOFOLLOW).read(
            count: count, at: offset, path: path)
        guard bytes.count == count else { throw ReplicationError.malformedSnapshot("the file is too short", path) }
        return bytes
    }

    /// Throws `ReplicationError.malformedSnapshot` if the file isn't the one that was announced, whole and sound.
    package func check() throws {
        let found: Int64
        let digest: String
        if let written {
            (found, digest) = (try SnapshotFile.size(path), written)
        } else {
            let read = try SnapshotDigest(of: path, chunkSize: chunkSize)
            (found, digest) = (read.size, read.sha256)
        }
        guard found == size else {
            throw ReplicationError.malformedSnapshot("it has \(found) bytes instead of \(size)", path)
        }
        guard digest == sha256 else { throw ReplicationError.malformedSnapshot("it has another SHA-256", path) }
        do {
            try checkContent()
        } catch let error as StoreError {
            throw ReplicationError.malformedSnapshot(error.description, path)
        } catch let error as HistoryError {
            throw ReplicationError.malformedSnapshot(error.description, path)
        }
    }

    /// Throws if SQLite finds damage.
    private func checkStructure(_ database: StoreWriter) throws {
        // The file is this user's own, and nobody cuts it: its pages need no copy.
        try database.execute("PRAGMA mmap_size = 2147418112")
        defer { try? database.execute("PRAGMA mmap_size = 0") }
        if let finding = try Self.firstFinding(database, "quick_check") {
            throw ReplicationError.malformedSnapshot(finding, path)
        }
    }

    /// Returns the first damage that SQLite finds; nil for none. A value that SQLite has accepted against its own
    /// rules, such as a NULL in a key, isn't damage: the home has it too.
    ///
    /// - Parameter check: `quick_check` or `integrity_check`.
    static func firstFinding(_ database: SQLiteConnection, _ check: String) throws -> String? {
        let finding = try database.prepare("PRAGMA \(check)(1000)")
        while try finding.step() {
            let text = finding.text(0) ?? ""
            let isOfValue = ["NULL", "non-", "NUMERIC", "TEXT"].contains { text.hasPrefix($0) }
            guard text == "ok" || isOfValue && text.contains(" value in ") else { return text }
        }
        return nil
    }

    private func checkContent() throws {
        let database = try StoreWriter(path)
        try database.execute("PRAGMA ignore_check_constraints = ON")
        try checkStructure(database)
        let isReplica = try ReplicaState.exists(in: database)
        let found = try RecordedPosition(database)
        let isAsAnnounced =
            try found.identifier == upto.history && found.number == upto.number && found.nonce == upto.nonce
            && RecordedPosition.hasSchema(schema, database)
        guard isAsAnnounced, !isReplica else {
            throw ReplicationError.malformedSnapshot("its content isn't what was announced", path)
        }
    }
}
