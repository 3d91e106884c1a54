import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A position in a WAL: the last frame of a commit, counted from 1, or 0 before the first.
package struct WALPosition: Equatable, Sendable {
    let salt: UInt64
    let frame: UInt32
    let checksum: FrameChecksum

    init(salt: UInt64, frame: UInt32, checksum: FrameChecksum) {
        self.salt = salt
        self.frame = frame
        self.checksum = checksum
    }

    static let none = WALPosition(salt: 0, frame: 0, checksum: .none)

    /// The position of the last commit that an index reports.
    package init(_ index: WriteAheadIndex) {
        self.init(salt: index.salt, frame: index.lastFrame, checksum: index.checksum)
    }
}

extension WriteAheadIndex {
    /// True if `last`, the last commit in the WAL, is what this index reports. After a reset, the index has the
    /// checksum of the former WAL's last commit, whose frames may still stand.
    func reports(_ last: WALPosition) -> Bool {
        if lastFrame > 0 { return WALPosition(self) == last }
        return last.frame == 0 || last.checksum == checksum
    }
}

/// An open write-ahead log (https://sqlite.org/fileformat2.html, §4.1). It stays readable after the file has lost its
/// name. `pread` moves no file offset, so threads may share it.
package final class WALFile: Sendable {
    static let headerLength = 32
    /// The bytes before the page of a frame.
    package static let frameHeaderLength = 24
    private let descriptor: Descriptor

    /// Takes over the open file.
    init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }

    /// Opens the file. Returns nil if it does not exist.
    init?(_ name: FilePath.Component, in directory: Directory) throws {
        do throws(SystemError) {
            descriptor = try directory.open(name, flags: O_RDONLY)
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    /// Returns the place of a frame, counted from 1, in the file.
    package static func offset(ofFrame frame: UInt32, _ pageSize: Int) -> Int64 {
        Int64(headerLength) + Int64(frame - 1) * Int64(frameHeaderLength + pageSize)
    }

    func status() throws(SystemError) -> FileStatus { try descriptor.status() }

    /// Reads as `Descriptor.read(into:at:path:)`.
    package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(SystemError) -> Int {
        try descriptor.read(into: buffer, at: offset)
    }

    func read(count: Int, at offset: Int64) throws(SystemError) -> [UInt8] {
        try descriptor.read(count: count, at: offset)
    }

    /// True if the former WAL ended at `last` and was restarted exactly once since. Then that frame is not overwritten
    /// yet, and no frame of the former WAL follows it.
    package func hasEnded(at last: WALPosition, before index: WriteAheadIndex) throws(SystemError) -> Bool {
        guard last.frame > index.lastFrame, Self.isNextSalt(index.salt, after: last.salt) else { return false }
        let frame = try read(count: Self.frameHeaderLength, at: Self.offset(ofFrame: last.frame, index.pageSize))
        guard frame.count == Self.frameHeaderLength else { return false }
        let isIntact = frame.withUnsafeBytes {
            $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self) == last.salt
                && FrameChecksum($0.word(16), $0.word(20)) == last.checksum
        }
        guard isIntact else { return false }
        return try !continues(after: last.frame, salt: last.salt, pageSize: index.pageSize)
    }

    /// True if a frame of the log with this salt may follow `frame`.
    package func continues(after frame: UInt32, salt: UInt64, pageSize: Int) throws(SystemError) -> Bool {
        let next = try read(count: Self.frameHeaderLength, at: Self.offset(ofFrame: frame + 1, pageSize))
        return next.withUnsafeBytes { header in
            guard header.count == Self.frameHeaderLength else { return false }
            let found = header.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            // A frame without a salt may belong to any WAL. SQLite before 3.46 leaves such frames, see
            // `WALFrames.transactions`.
            return found == salt || found == 0
        }
    }

    /// True if `salt` follows `former`. Each restart of a WAL increments the first half of its salt; the second half is
    /// random.
    package static func isNextSalt(_ salt: UInt64, after former: UInt64) -> Bool {
        func count(_ salt: UInt64) -> UInt32 { withUnsafeBytes(of: salt) { $0.word(0) } }
        return count(salt) == count(former) &+ 1
    }

    /// Returns the salt in the header, as in an index; nil without a header.
    func salt() throws(SystemError) -> UInt64? {
        try read(count: Self.headerLength, at: 0).withUnsafeBytes { bytes in
            bytes.count == Self.headerLength ? bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self) : nil
        }
    }

    /// Returns the page size in the header; 0 without a header.
    func pageSize() throws(SystemError) -> Int {
        try read(count: Self.headerLength, at: 0).withUnsafeBytes { bytes in
            bytes.count == Self.headerLength ? Int(bytes.word(8)) : 0
        }
    }

    /// Returns the last commit, as the frames tell; frame 0 without one. The frames up to `known` aren't read again if
    /// the log still has its salt.
    func lastCommit(beyond known: WALPosition) throws(SystemError) -> WALPosition {
        let last = try WriteAheadLog(
            descriptor, path: "", beyond: known.frame > 0 ? [(known.salt, known.frame, known.checksum)] : [])
        return WALPosition(salt: last.salt, frame: last.lastFrame, checksum: last.checksum)
    }

    /// True if this file's header has the salt of that commit's index.
    package func belongs(to commit: WriteAheadIndex) throws(SystemError) -> Bool {
        let header = try read(count: Self.headerLength, at: 0)
        return header.withUnsafeBytes { bytes in
            bytes.count == Self.headerLength && bytes.word(0) & ~1 == 0x377F_0682
                && bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self) == commit.salt
        }
    }
}
