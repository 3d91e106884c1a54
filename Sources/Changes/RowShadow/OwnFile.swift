import CXXHash
import Glibc
import LinuxSystem
import SystemPackage

/// An open file of groupstore's own.
final class OwnFile {
    let descriptor: Descriptor
    let path: FilePath
    /// What was written last, to the end of the file's content, and its offset. Mostly, that is what is read next.
    private var recent: (offset: Int64, bytes: [UInt8]) = (0, [])
    /// Bytes that may be written before the disk's space is looked at again, and for how long.
    private var granted: (count: UInt64, until: ContinuousClock.Instant) = (0, .now)

    init(_ descriptor: consuming Descriptor, path: FilePath) {
        self.descriptor = descriptor
        self.path = path
    }
}

extension OwnFile {
    /// Opens a file that only the user may read, and makes it if there is none. Throws `SystemError`.
    convenience init(_ name: FilePath.Component, in directory: Directory) throws(SystemError) {
        self.init(
            try directory.openOwn(name, flags: O_RDWR | O_CREAT, mode: 0o600), path: directory.path.appending(name))
    }

    /// Opens a file to read it. Throws `SystemError`, also if there is none.
    convenience init(reading name: FilePath.Component, in directory: Directory) throws(SystemError) {
        self.init(try directory.openOwn(name, flags: O_RDONLY), path: directory.path.appending(name))
    }
}

/// The space on a shadow's disk.
struct ShadowSpace {
    /// Bytes that the user can still write.
    let available: UInt64
    /// Bytes that a shadow leaves: the programs that write the store need some for a journal, or a log.
    let reserve: UInt64

    private static let standardReserve: UInt64 = 64 << 20

    /// - Parameter descriptor: A file or directory there.
    ///
    /// Returns nil for a file system that doesn't know its size.
    init?(_ descriptor: CInt) {
        var status = statvfs()
        guard fstatvfs(descriptor, &status) == 0, status.f_blocks > 0 else { return nil }
        let unit = UInt64(status.f_frsize)
        available = UInt64(status.f_bavail) * unit
        reserve = min(Self.standardReserve, UInt64(status.f_blocks) * unit / 16)
    }
}

extension OwnFile {
    /// Throws `RowShadowError.noSpace` if the programs that write the store would be left with too little.
    func requireSpace(for count: UInt64) throws {
        if count <= granted.count, ContinuousClock.now < granted.until { return granted.count -= count }
        granted.count = 0
        guard let space = ShadowSpace(descriptor.raw) else { return }
        guard space.available >= space.reserve + count else {
            throw RowShadowError.noSpace(path, reserve: space.reserve)
        }
        granted = (min(1 << 20, space.available - space.reserve - count), .now.advanced(by: .milliseconds(100)))
    }

    fileprivate func write(_ bytes: [UInt8], at offset: Int64) throws {
        forget()
        try requireSpace(for: UInt64(bytes.count))
        try descriptor.write(bytes, at: offset, path: path)
    }

    /// Keeps the last bytes of the file's content for those who read them.
    fileprivate func keep(_ bytes: [UInt8], at offset: Int64) {
        if bytes.count <= 1 << 20 { recent = (offset, bytes) }
    }

    /// Forgets what was kept: the content ends elsewhere.
    fileprivate func forget() { recent = (0, []) }

    fileprivate func read(count: Int, at offset: Int64) throws(SystemError) -> [UInt8] {
        let start = offset - recent.offset
        guard start >= 0, start < recent.bytes.count else {
            return try descriptor.read(count: count, at: offset, path: path)
        }
        return Array(recent.bytes[Int(start)...].prefix(count))
    }
}

/// Writes consecutive bytes in large pieces. Throws `RowShadowError.noSpace` and `SystemError`.
final class BufferedWriter {
    private let file: OwnFile
    private var offset: Int64
    // Nothing here calls others while it changes them: a row takes some ten accesses, whose checks cost more.
    @exclusivity(unchecked) private var buffer: [UInt8] = []
    /// Of the entry that was begun; nil outside of one.
    @exclusivity(unchecked) private var sum: UInt64?
    private let isRead: Bool
    private static let limit = 1 << 18

    /// - Parameter isRead: True if what is written last is read soon.
    init(_ file: OwnFile, at offset: Int64, isRead: Bool = false) {
        self.file = file
        self.offset = offset
        self.isRead = isRead
    }

    /// The offset after what was appended.
    var end: Int64 { offset + Int64(buffer.count) }

    func append(_ bytes: UnsafeRawBufferPointer) throws {
        if let seed = sum { sum = gs_hash_bytes(bytes.baseAddress, bytes.count, seed) }
        buffer.append(contentsOf: bytes)
        if buffer.count >= Self.limit { try flush() }
    }

    /// Appends a number in eight bytes.
    func append(word: UInt64) throws { try withUnsafeBytes(of: word.littleEndian) { try append($0) } }

    /// Begins an entry, which ends with `endEntry`.
    func beginEntry() { sum = UInt64(bitPattern: end) }

    /// Appends the checksum of the entry and of its place. It tells a fault of the disk, not forged content.
    func endEntry() throws {
        guard let sum = sum.take() else { return }
        try append(word: sum)
    }

    /// Replaces bytes that were appended by those of an entry that another writer made for their place.
    func replace(with entry: BufferedWriter) throws {
        let start = entry.offset - offset
        guard start >= 0 else { return try file.descriptor.write(entry.buffer, at: entry.offset, path: file.path) }
        buffer.replaceSubrange(Int(start)..<Int(start) + entry.buffer.count, with: entry.buffer)
    }

    /// Drops what was appended from an offset on.
    func cut(to end: Int64) {
        sum = nil
        file.forget()
        if end >= offset { return buffer.removeSubrange(Int(end - offset)...) }
        offset = end
        buffer.removeAll(keepingCapacity: true)
    }

    func flush() throws {
        guard !buffer.isEmpty else { return }
        try file.write(buffer, at: offset)
        let start = offset
        offset += Int64(buffer.count)
        guard isRead else { return buffer.removeAll(keepingCapacity: true) }
        file.keep(buffer, at: start)
        let length = buffer.count
        buffer = []
        // The next steps are mostly about as long.
        buffer.reserveCapacity(length)
    }
}

/// Reads consecutive bytes in large pieces.
struct BufferedReader {
    private let file: OwnFile
    private(set) var offset: Int64
    private var buffer: [UInt8] = []
    private var next = 0
    /// Of the entry that was begun; nil outside of one.
    private var sum: UInt64?
    private let length: Int

    /// - Parameter length: The number of bytes that are read at once.
    init(_ file: OwnFile, at offset: Int64, length: Int = 1 << 16) {
        self.file = file
        self.offset = offset
        self.length = length
    }

    /// Passes on exactly `count` bytes. Throws `RowShadowError.damaged` at the end of the file.
    @inline(__always)
    private mutating func take<Result>(_ count: Int, _ body: (UnsafeRawBufferPointer) -> Result) throws -> Result {
        if buffer.count - next < count {
            buffer = try file.read(count: max(count, length), at: offset)
            next = 0
            guard buffer.count >= count else { throw RowShadowError.damaged(file.path) }
        }
        let (start, seed) = (next, sum)
        next += count
        offset += Int64(count)
        let (result, hash) = buffer.withUnsafeBytes { buffer in
            let bytes = UnsafeRawBufferPointer(rebasing: buffer[start..<start + count])
            return (body(bytes), seed.map { gs_hash_bytes(bytes.baseAddress, count, $0) })
        }
        sum = hash
        return result
    }

    /// Reads exactly `count` bytes. Throws `RowShadowError.damaged` at the end of the file.
    mutating func bytes(_ count: Int) throws -> [UInt8] { try take(count) { Array($0) } }

    /// Begins an entry, which ends with `endEntry`.
    mutating func beginEntry() { sum = UInt64(bitPattern: offset) }

    /// Reads the checksum of the entry. Throws `RowShadowError.damaged` if the entry isn't what was written.
    mutating func endEntry() throws {
        let expected = sum.take()
        guard try word() == expected else { throw RowShadowError.damaged(file.path) }
    }

    /// Passes over bytes. What is behind the end of the file shows at the next read.
    mutating func skip(_ count: Int) {
        offset += Int64(count)
        if count <= buffer.count - next { next += count } else { (buffer, next) = ([], 0) }
    }

    mutating func word() throws -> UInt64 {
        try take(8) { UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }
    }

    mutating func text() throws -> String {
        let count = try word()
        guard count < 1 << 31 else { throw RowShadowError.damaged(file.path) }
        return try take(Int(count)) { String(decoding: $0, as: UTF8.self) }
    }
}
