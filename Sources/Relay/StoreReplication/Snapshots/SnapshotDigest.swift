import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// The SHA-256 of a snapshot's chunks. Each chunk is hashed once, for itself and for the whole.
package struct SnapshotDigest: Sendable, Equatable {
    /// The size of all chunks but the last one, in bytes.
    package let chunkSize: Int
    /// The size of the file, in bytes.
    package let size: Int64
    /// A line for each chunk: its SHA-256 in hexadecimal.
    private let lines: [UInt8]
    /// The SHA-256 of the lines.
    package let sha256: String

    private static let digits = 64

    /// The parts of a file that are read at the same time.
    private static let parts = 2

    /// Reads a file that nobody writes. Throws `SystemError`.
    package init(of path: FilePath, chunkSize: Int) throws {
        let size = try SnapshotFile.size(path)
        let count = (size + Int64(chunkSize) - 1) / Int64(chunkSize)
        let results = Mutex([Result<[UInt8], SystemError>](repeating: .success([]), count: Self.parts))
        DispatchQueue.concurrentPerform(iterations: Self.parts) { part in
            let chunks = count * Int64(part) / Int64(Self.parts)..<count * Int64(part + 1) / Int64(Self.parts)
            let result = Result { () throws(SystemError) in
                try Self.lines(of: chunks, size: size, path, chunkSize: chunkSize)
            }
            results.withLock { $0[part] = result }
        }
        var lines: [UInt8] = []
        for result in results.withLock({ $0 }) { lines += try result.get() }
        (self.chunkSize, self.size, self.lines) = (chunkSize, size, lines)
        sha256 = SHA256Stream.digest(lines)
    }

    private static func lines(
        of chunks: Range<Int64>, size: Int64, _ path: FilePath, chunkSize: Int
    ) throws(SystemError) -> [UInt8] {
        let descriptor = try Descriptor(opening: path, flags: O_RDONLY | O_NOFOLLOW)
        var lines: [UInt8] = []
        for chunk in chunks {
            let offset = chunk * Int64(chunkSize)
            let count = Int(min(Int64(chunkSize), size - offset))
            let bytes = try descriptor.read(count: count, at: offset, path: path)
            guard bytes.count == count else { throw SystemError("read", .ioError, path: path) }
            lines += line(SHA256Stream.digest(bytes))
        }
        return lines
    }

    /// The line for a chunk with this SHA-256.
    package static func line(_ sha256: String) -> [UInt8] { Array(sha256.utf8) + [UInt8(ascii: "\n")] }

    /// The SHA-256 of a chunk; nil if there is no such chunk.
    package subscript(chunk: Int) -> String? {
        let start = chunk * (Self.digits + 1)
        guard chunk >= 0, start < lines.count else { return nil }
        return String(decoding: lines[start..<start + Self.digits], as: UTF8.self)
    }
}
