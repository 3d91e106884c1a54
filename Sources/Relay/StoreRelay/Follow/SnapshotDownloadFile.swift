import Glibc
import LinuxSystem
import StoreReplication
import SystemPackage

/// The file of a snapshot that is being received. Chunks are added in order, and hashed on arrival: reading them again
/// would take a third of the time of their transfer.
final class SnapshotDownloadFile {
    private let writing: FileWriting
    /// The SHA-256 of the lines of a `SnapshotDigest`.
    private let hash = SHA256Stream()
    /// The number of bytes that are written, or being written.
    private(set) var size: Int64

    /// Opens or creates the file, and reads the chunks of an interrupted download. All of them are whole but the last
    /// one, which is removed if it isn't.
    ///
    /// - Parameters:
    ///   - expected: The size of the whole file.
    ///   - chunkSize: The size of all chunks but the last one.
    ///   - watchdog: Watches the waits for the disk; nil for nobody.
    init(
        _ name: FilePath.Component, in directory: Directory, expected: Int64, chunkSize: Int, watchdog: Watchdog? = nil
    ) throws(SystemError) {
        let path = directory.path.appending(name)
        let descriptor = try directory.openOwn(name, flags: O_RDWR | O_CREAT, mode: 0o600)
        let length = try descriptor.status(path: path).size
        size = length == expected ? expected : min(length, expected) / Int64(chunkSize) * Int64(chunkSize)
        try descriptor.truncate(to: size, path: path)
        var offset: Int64 = 0
        while offset < size {
            let bytes = try descriptor.read(
                count: Int(min(Int64(chunkSize), size - offset)), at: offset, path: path)
            guard !bytes.isEmpty else { throw SystemError("read", .ioError, path: path) }
            hash.add(SnapshotDigest.line(SHA256Stream.digest(bytes)))
            offset += Int64(bytes.count)
        }
        writing = try FileWriting(to: descriptor, at: size, path: path, watchdog: watchdog)
    }

    /// Adds the next chunk. It is written while the next ones are received. Throws the error of an earlier write.
    func append(_ bytes: [UInt8], sha256: String) throws(SystemError) {
        try writing.add(bytes)
        hash.add(SnapshotDigest.line(sha256))
        size += Int64(bytes.count)
    }

    /// Waits until everything is written, and returns the SHA-256 of all chunks' SHA-256s. Throws the error of a write.
    func finish() throws(SystemError) -> String {
        try writing.finish()
        return hash.finish()
    }
}
