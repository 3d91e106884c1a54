import Glibc
import LinuxSystem
import StoreReplication
import SystemPackage

/// The file of a snapshot that is being received. Chunks come in their order, and are hashed as they come: reading them
/// again would take a third of the time that they took to arrive.
final class ReceivedFile {
    private let descriptor: Descriptor
    private let path: FilePath
    private let hash = SHA256Stream()
    /// The bytes that are there.
    private(set) var size: Int64
    /// The bytes whose writing to the disk has begun.
    private var flushed: Int64 = 0

    private static let writeback: Int64 = 4 << 20

    /// Opens or creates the file, and reads what an interrupted download has left of it. What is there is whole, but
    /// for the last chunk, which is removed then.
    ///
    /// - Parameters:
    ///   - expected: The size of the whole file.
    ///   - chunkSize: The size of all chunks but the last one.
    init(_ name: FilePath.Component, in directory: Directory, expected: Int64, chunkSize: Int) throws(SystemError) {
        path = directory.path.appending(name)
        descriptor = try directory.openOwn(name, flags: O_RDWR | O_CREAT, mode: 0o600)
        let length = try descriptor.status(path: path).size
        size = length == expected ? expected : min(length, expected) / Int64(chunkSize) * Int64(chunkSize)
        try descriptor.truncate(to: size, path: path)
        var offset: Int64 = 0
        while offset < size {
            let bytes = try descriptor.read(count: Int(min(1 << 20, size - offset)), at: offset, path: path)
            guard !bytes.isEmpty else { throw SystemError("read", .ioError, path: path) }
            hash.add(bytes)
            offset += Int64(bytes.count)
        }
    }

    func append(_ bytes: [UInt8]) throws(SystemError) {
        try descriptor.write(bytes, at: size, path: path)
        hash.add(bytes)
        size += Int64(bytes.count)
        guard size - flushed >= Self.writeback else { return }
        // The sync of the replica has little left to write then.
        descriptor.beginWriteback(at: flushed, count: size - flushed)
        flushed = size
    }

    /// Returns the SHA-256 of the whole file.
    func finish() -> String { hash.finish() }
}
