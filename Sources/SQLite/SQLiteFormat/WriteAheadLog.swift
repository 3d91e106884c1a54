import LinuxSystem
import SystemPackage

/// The content of a write-ahead log, read without its index, as SQLite does to recover one
/// (https://sqlite.org/fileformat2.html, §4.1 to §4.3).
///
/// SQLite's own formats are parsed here because its library only opens databases: an open takes locks, and may recover
/// or checkpoint a log that must stay as it is.
package struct WriteAheadLog: Equatable, Sendable {
    /// The checksum of the last commit, or `none` without one.
    package let checksum: FrameChecksum
    /// The last frame of the last commit, or 0 without one.
    package let lastFrame: UInt32
    /// The salt, as in the index.
    package let salt: UInt64

    static let headerLength = 32
    static let frameHeaderLength = 24

    /// Reads the WAL's frames up to the first invalid one. A WAL without a valid header holds no commit.
    ///
    /// `known` are commits that may be in the WAL. The frames up to the last one that fits it are not read again.
    package init(
        _ descriptor: borrowing Descriptor, path: FilePath,
        beyond known: [(salt: UInt64, frame: UInt32, checksum: FrameChecksum)] = []
    ) throws(SystemError) {
        let header = try descriptor.read(count: Self.headerLength, at: 0, path: path)
        guard let start = Start(header) else {
            checksum = .none
            lastFrame = 0
            salt = 0
            return
        }
        let salt = header.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 16, as: UInt64.self) }
        var running = start.checksum
        var committed = FrameChecksum.none
        var (frameCount, committedCount): (UInt32, UInt32) = (0, 0)
        let frameLength = Int64(Self.frameHeaderLength + start.pageSize)
        let wholeFrames = (try descriptor.status().size - Int64(Self.headerLength)) / frameLength
        for commit in known where commit.salt == salt && commit.frame > frameCount && commit.frame <= wholeFrames {
            (running, committed) = (commit.checksum, commit.checksum)
            (frameCount, committedCount) = (commit.frame, commit.frame)
        }
        var offset = Int64(Self.headerLength) + Int64(frameCount) * frameLength
        while true {
            let frame = try descriptor.read(
                count: Self.frameHeaderLength + start.pageSize, at: offset, path: path)
            guard frame.count == Self.frameHeaderLength + start.pageSize,
                frame[8..<16].elementsEqual(header[16..<24])
            else { break }
            running = running.adding(frame[0..<8], start.order)
            running = running.adding(frame[Self.frameHeaderLength...], start.order)
            guard running == FrameChecksum(bigEndian(frame, 16), bigEndian(frame, 20)) else { break }
            let isCommit = bigEndian(frame, 4) != 0
            frameCount += 1
            if isCommit { (committed, committedCount) = (running, frameCount) }
            offset += Int64(frame.count)
        }
        checksum = committed
        lastFrame = committedCount
        self.salt = salt
    }

    /// Calls `body` with each valid frame in order: its page, the page's content, and whether it ends a commit. Ends
    /// where `body` returns false. Frames after the last commit may follow it.
    package static func forEachFrame(
        _ descriptor: borrowing Descriptor, path: FilePath,
        _ body: (_ page: UInt32, _ content: UnsafeRawBufferPointer, _ isCommit: Bool) throws -> Bool
    ) throws {
        try forEachSizedFrame(descriptor, path: path) { try body($0, $1, $2 != 0) }
    }

    /// As `forEachFrame`, but a commit is the database's size in pages after it, and any other frame has 0.
    static func forEachSizedFrame(
        _ descriptor: borrowing Descriptor, path: FilePath,
        _ body: (_ page: UInt32, _ content: UnsafeRawBufferPointer, _ committedSize: UInt32) throws -> Bool
    ) throws {
        let header = try descriptor.read(count: headerLength, at: 0, path: path)
        guard let start = Start(header) else { return }
        var running = start.checksum
        var offset = Int64(headerLength)
        while true {
            let frame = try descriptor.read(count: frameHeaderLength + start.pageSize, at: offset, path: path)
            guard frame.count == frameHeaderLength + start.pageSize, frame[8..<16].elementsEqual(header[16..<24]) else {
                return
            }
            running = running.adding(frame[0..<8], start.order)
            running = running.adding(frame[frameHeaderLength...], start.order)
            guard running == FrameChecksum(bigEndian(frame, 16), bigEndian(frame, 20)) else { return }
            let continues = try frame.withUnsafeBytes { bytes in
                let content = UnsafeRawBufferPointer(rebasing: bytes[frameHeaderLength...])
                return try body(bytes.word(0), content, bytes.word(4))
            }
            guard continues else { return }
            offset += Int64(frame.count)
        }
    }

    /// What shows on which database a log follows, and tells logs from each other.
    package struct Origin: Sendable {
        /// The salts of the header and of all frames in the file, valid or not.
        package let salts: Set<UInt64>
        /// The checksum of the first commit's pages, without salts.
        package let firstCommit: FrameChecksum
        /// The database's header as the first commit that changes page 1 has it; nil without such a commit.
        package let header: DatabaseHeader?

        package init(salts: Set<UInt64>, firstCommit: FrameChecksum, header: DatabaseHeader?) {
            (self.salts, self.firstCommit, self.header) = (salts, firstCommit, header)
        }

        /// Returns nil for a log without a commit.
        package init?(_ descriptor: borrowing Descriptor, path: FilePath) throws {
            var (sum, written, committed): (FrameChecksum, [UInt8]?, [UInt8]?) = (.none, nil, nil)
            var hasCommit = false
            try forEachFrame(descriptor, path: path) { page, content, isCommit in
                if !hasCommit { sum = FrameChecksum(sum.first ^ page, sum.second).adding(content, .little) }
                if page == 1, written == nil { written = Array(content.prefix(DatabaseHeader.length)) }
                if isCommit { (hasCommit, committed) = (true, written) }
                return committed == nil
            }
            let header = try descriptor.read(count: headerLength, at: 0, path: path)
            guard hasCommit, let start = Start(header) else { return nil }
            func salt(_ bytes: [UInt8]) -> UInt64 { bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) } }
            var salts: Set = [salt(Array(header[16..<24]))]
            var offset = Int64(headerLength) + 8
            while case let found = try descriptor.read(count: 8, at: offset, path: path), found.count == 8 {
                salts.insert(salt(found))
                offset += Int64(frameHeaderLength + start.pageSize)
            }
            self.init(salts: salts, firstCommit: sum, header: committed.flatMap(DatabaseHeader.init))
        }
    }

    /// True if the log may have frames, and no header says which: SQLite takes it for empty.
    package static func hasLostItsHeader(
        _ descriptor: borrowing Descriptor, path: FilePath
    ) throws(SystemError) -> Bool {
        let header = try descriptor.read(count: headerLength, at: 0, path: path)
        let size = try descriptor.status(path: path).size
        return Start(header) == nil && size > Int64(headerLength)
    }

    /// True if the log has the commit that an index reports, whole and by its checksums, or was begun anew since.
    package static func has(
        _ commit: WriteAheadIndex, _ descriptor: borrowing Descriptor, path: FilePath
    ) throws(SystemError) -> Bool {
        guard commit.lastFrame > 0 else { return true }
        let header = try descriptor.read(count: headerLength, at: 0, path: path)
        // SQLite begins a log anew with a header of its own.
        guard Start(header) != nil else { return false }
        guard try isOfSession(commit, descriptor, path: path) else { return true }
        let log = try WriteAheadLog(descriptor, path: path)
        guard log.lastFrame >= commit.lastFrame else { return false }
        let offset = Int64(headerLength) + Int64(commit.lastFrame - 1) * Int64(frameHeaderLength + commit.pageSize)
        let frame = try descriptor.read(count: frameHeaderLength, at: offset, path: path)
        return frame.count == frameHeaderLength
            && FrameChecksum(bigEndian(frame, 16), bigEndian(frame, 20)) == commit.checksum
    }

    /// True if the log has the salts that an index reports: nobody began it anew after or before the commit.
    package static func isOfSession(
        _ commit: WriteAheadIndex, _ descriptor: borrowing Descriptor, path: FilePath
    ) throws(SystemError) -> Bool {
        let salt = try descriptor.read(count: 8, at: 16, path: path)
        return salt.count == 8 && salt.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) } == commit.salt
    }

    /// True for the first bytes of a log: its magic number, 0x377f0682 or 0x377f0683.
    package static func isStart(_ bytes: [UInt8]) -> Bool {
        bytes.count >= 4 && bigEndian(bytes, 0) & ~1 == 0x377F_0682
    }

    struct Start {
        let order: FrameChecksum.WordOrder
        let pageSize: Int
        let checksum: FrameChecksum

        init?(_ header: [UInt8]) {
            guard header.count == headerLength else { return nil }
            switch bigEndian(header, 0) {
            case 0x377F_0682: order = .little
            case 0x377F_0683: order = .big
            default: return nil
            }
            pageSize = Int(bigEndian(header, 8))
            guard (512...65536).contains(pageSize), pageSize & (pageSize - 1) == 0 else { return nil }
            checksum = FrameChecksum.none.adding(header[0..<24], order)
            guard checksum == FrameChecksum(bigEndian(header, 24), bigEndian(header, 28)) else { return nil }
        }
    }
}

private func bigEndian(_ bytes: [UInt8], _ offset: Int) -> UInt32 {
    bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
}
