import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// The bytes of a write-ahead log and of a wal-index, built as the format says
/// (https://sqlite.org/fileformat2.html, §4; https://sqlite.org/walformat.html, §2), without the code under test.
struct LogBytes {
    static let pageSize = 4096
    private(set) var bytes: [UInt8]
    private(set) var frameCount: UInt32 = 0
    private let salt: [UInt8]
    private var first: UInt32 = 0
    private var second: UInt32 = 0

    /// Creates a log without a frame, whose checksums are big-endian.
    init(salt: UInt8) {
        self.salt = [0, 0, 0, salt, 0xA5, salt, 0x5A, 1]
        bytes =
            Self.big(0x377F_0683) + Self.big(3_007_000) + Self.big(UInt32(Self.pageSize)) + Self.big(0) + self.salt
        add(bytes[...])
        bytes += checksum
    }

    private static func big(_ number: UInt32) -> [UInt8] { withUnsafeBytes(of: number.bigEndian) { Array($0) } }
    private static func native(_ number: UInt32) -> [UInt8] { withUnsafeBytes(of: number) { Array($0) } }
    private var checksum: [UInt8] { Self.big(first) + Self.big(second) }

    private mutating func add(_ more: ArraySlice<UInt8>) {
        func word(_ start: Int) -> UInt32 { more[start..<start + 4].reduce(0) { $0 << 8 | UInt32($1) } }
        for start in stride(from: more.startIndex, to: more.endIndex, by: 8) {
            first = first &+ word(start) &+ second
            second = second &+ word(start + 4) &+ first
        }
    }

    /// Appends a frame of page 2. It ends a transaction if `isCommit`.
    mutating func append(_ fill: UInt8, isCommit: Bool = true) {
        let start = Self.big(2) + Self.big(isCommit ? 2 : 0)
        let page = Self.page(fill)
        add(start[...])
        add(page[...])
        bytes += start + salt + checksum + page
        frameCount += 1
    }

    /// A log of so many commits.
    static func commits(_ count: UInt8, salt: UInt8 = 1) -> LogBytes {
        var log = LogBytes(salt: salt)
        for number in 0..<count { log.append(number) }
        return log
    }

    /// An empty leaf page of a table, with something in its free space.
    static func page(_ fill: UInt8) -> [UInt8] {
        [0x0D, 0, 0, 0, 0, 0x10, 0, 0] + [UInt8](repeating: fill, count: pageSize - 8)
    }

    /// The index of this log as it is.
    func index(commits: UInt32 = 0, backfilled: UInt32 = 0) -> [UInt8] {
        Self.index(
            salt: salt, frame: frameCount, checksum: (first, second), commits: commits, backfilled: backfilled)
    }

    /// The index after this log was reset: it has the next salt and the last checksum.
    func indexAfterReset(commits: UInt32 = 3) -> [UInt8] {
        Self.index(
            salt: [0, 0, 0, salt[3] + 1, 9, 9, 9, 9], frame: 0, checksum: (first, second), commits: commits)
    }

    /// The index of an empty log.
    static let emptyIndex = index(
        salt: [UInt8](repeating: 0, count: 8), frame: 0, checksum: (0, 0), commits: 0, backfilled: 0)

    private static func index(
        salt: [UInt8], frame: UInt32, checksum: (UInt32, UInt32), commits: UInt32, backfilled: UInt32 = 0
    ) -> [UInt8] {
        // iVersion, unused, iChange, isInit and bigEndCksum, szPage, mxFrame, nPage, aFrameCksum, aSalt, aCksum.
        var header = native(3_007_000) + native(0) + native(commits) + [1, 1]
        header += withUnsafeBytes(of: UInt16(pageSize)) { Array($0) }
        header += native(frame) + native(frame == 0 ? 0 : 2) + native(checksum.0) + native(checksum.1) + salt
        header += native(0) + native(0)
        var bytes = header + header + native(backfilled)
        bytes += [UInt8](repeating: 0, count: 128 - bytes.count) + native(max(backfilled, frame))
        return bytes + [UInt8](repeating: 0, count: 32768 - bytes.count)
    }
}

extension ObserverRig {
    /// A side file's path.
    private func path(_ suffix: String) -> FilePath { FilePath(store.string + suffix) }

    /// Writes a file in place, or removes it. A file that exists keeps its inode.
    func put(_ bytes: [UInt8]?, _ suffix: String = "") throws { try Self.put(bytes, at: path(suffix)) }

    static func put(_ bytes: [UInt8]?, at path: FilePath) throws {
        guard let bytes else {
            unlink(path.string)
            return
        }
        let file = try Descriptor(opening: path, flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        try write(bytes, to: file, at: 0)
    }

    private static func write(_ bytes: [UInt8], to file: borrowing Descriptor, at offset: Int) throws {
        let count = bytes.withUnsafeBytes { pwrite(file.raw, $0.baseAddress, $0.count, off_t(offset)) }
        guard count == bytes.count else { throw Unexpected("pwrite: \(errno)") }
    }

    /// The database's bytes.
    func bytes() throws -> [UInt8] {
        let file = try Descriptor(opening: store, flags: O_RDONLY)
        return try file.read(count: Int(try file.status().size), at: 0)
    }

    /// Writes page 2 of the database.
    func putPage(_ fill: UInt8) throws {
        let file = try Descriptor(opening: store, flags: O_WRONLY)
        try Self.write(LogBytes.page(fill), to: file, at: LogBytes.pageSize)
    }

    /// Overwrites the index as programs do, through mapped memory: no event reports it.
    func mapIndex(_ bytes: [UInt8]) throws {
        let file = try Descriptor(opening: path("-shm"), flags: O_RDWR)
        let memory = mmap(nil, bytes.count, PROT_READ | PROT_WRITE, MAP_SHARED, file.raw, 0)
        guard let memory, memory != MAP_FAILED else { throw Unexpected("mmap: \(errno)") }
        UnsafeMutableRawBufferPointer(start: memory, count: bytes.count).copyBytes(from: bytes)
        munmap(memory, bytes.count)
    }
}
