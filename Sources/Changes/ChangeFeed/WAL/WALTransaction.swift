import LinuxSystem
import SQLiteFormat

/// The frames of one commit.
package struct WALTransaction {
    /// The database's size in pages after the commit.
    package let pageCount: UInt32
    private let frames: WALFrames
    /// The transaction's bytes within those of the frames.
    private let range: Range<Int>

    fileprivate init(pageCount: UInt32, frames: WALFrames, range: Range<Int>) {
        self.pageCount = pageCount
        self.frames = frames
        self.range = range
    }

    /// The number of its frames.
    package var frameCount: Int { range.count / (WALFile.frameHeaderLength + frames.pageSize) }

    /// The length of its frames in bytes.
    package var length: Int { range.count }

    /// Calls `body` with each frame's page. Returns false as soon as `body` does. A page may occur twice.
    func allSatisfy(_ body: (_ page: UInt32, _ content: UnsafeRawBufferPointer) -> Bool) -> Bool {
        let bytes = frames.bytes
        var offset = range.lowerBound
        while offset < range.upperBound {
            let start = offset + WALFile.frameHeaderLength
            let content = UnsafeRawBufferPointer(rebasing: bytes[start..<start + frames.pageSize])
            guard body(bytes.word(offset), content) else { return false }
            offset = start + frames.pageSize
        }
        return true
    }

    /// Returns the pages by number.
    package func pages() -> WALPages {
        var offsets: [UInt32: Int] = [:]
        let length = WALFile.frameHeaderLength + frames.pageSize
        for offset in stride(from: range.lowerBound, to: range.upperBound, by: length) {
            offsets[frames.bytes.word(offset)] = offset + WALFile.frameHeaderLength
        }
        return WALPages(pageCount: pageCount, frames: frames, offsets: offsets)
    }
}

/// The pages that one commit wrote. If a page was written twice, its last content counts.
package final class WALPages: PageSource {
    /// The database's size in pages after the commit.
    package let pageCount: UInt32
    private let frames: WALFrames
    private let offsets: [UInt32: Int]

    fileprivate init(pageCount: UInt32, frames: WALFrames, offsets: [UInt32: Int]) {
        self.pageCount = pageCount
        self.frames = frames
        // A page that was spilled before the transaction freed it lies beyond the database's end.
        self.offsets = offsets.keys.allSatisfy { $0 <= pageCount } ? offsets : offsets.filter { $0.key <= pageCount }
    }

    /// The numbers of the written pages.
    package var changed: some Collection<UInt32> { offsets.keys }
    func isChanged(_ page: UInt32) -> Bool { offsets[page] != nil }

    /// Returns the last content of a written page.
    package func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
        guard let offset = offsets[page] else { throw Unattributable.malformed(page: page) }
        return UnsafeRawBufferPointer(rebasing: frames.bytes[offset..<offset + frames.pageSize])
    }
}

/// Frames of a WAL that were read in one call.
package final class WALFrames {
    let pageSize: Int
    private let memory: FrameCache
    private var count = 0

    /// The most bytes to read at once. A larger backlog isn't attributed to tables.
    private static let maxBytes = 64 << 20

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory.bytes[..<(count * frameLength)]) }
    private var frameLength: Int { WALFile.frameHeaderLength + pageSize }

    /// Reads exactly `count` frames after `frame`.
    private convenience init(_ log: WALFile, after frame: UInt32, count: Int, pageSize: Int) throws {
        try self.init(log, after: frame, upTo: count, pageSize: pageSize)
        guard bytes.count == count * frameLength else { throw Unattributable.gap }
    }

    /// Reads the whole frames after `frame`, at most `limit`.
    private init(_ log: WALFile, after frame: UInt32, upTo limit: Int, pageSize: Int) throws {
        self.pageSize = pageSize
        let length = WALFile.frameHeaderLength + pageSize
        guard limit <= Self.maxBytes / length, let memory = FrameCache.allocate(limit * length) else {
            throw Unattributable.tooLarge
        }
        self.memory = memory
        count = try log.read(into: memory.bytes, at: WALFile.offset(ofFrame: frame + 1, pageSize)) / length
    }

    deinit { memory.release() }

    /// Returns the transactions after `frame`, up to and including `commit`. Throws `Unattributable` or `SystemError`.
    ///
    /// Committed frames stay as they are until the WAL is restarted, and the index shows a restart first. If its salt
    /// is unchanged after reading, the frames are the committed ones. Their checksums prove less: if a transaction was
    /// spilled and then rolled back to a savepoint, SQLite before 3.46 commits frames without checksums.
    package static func transactions(
        _ log: WALFile, after frame: UInt32, to commit: WriteAheadIndex, index: WALIndexFile
    ) throws -> [WALTransaction] {
        guard commit.lastFrame > frame else { throw Unattributable.gap }
        let frames = try WALFrames(log, after: frame, count: Int(commit.lastFrame - frame), pageSize: commit.pageSize)
        guard try index.contains(commit) else { throw Unattributable.gap }
        return try frames.split()
    }

    /// Returns the transactions after `frame`, up to and including a commit that the frames themselves tell. Throws
    /// `Unattributable` or `SystemError`.
    static func transactions(_ log: WALFile, after frame: UInt32, to commit: WALPosition) throws -> [WALTransaction] {
        let frames = try WALFrames(
            log, after: frame, count: Int(commit.frame - frame), pageSize: try log.pageSize())
        // A log that is begun anew gets its header first.
        guard try log.salt() == commit.salt else { throw Unattributable.gap }
        return try frames.split()
    }

    private func split() throws(Unattributable) -> [WALTransaction] {
        var found: [WALTransaction] = []
        var start = 0
        for offset in stride(from: 0, to: bytes.count, by: frameLength) {
            let pageCount = bytes.word(offset + 4)
            guard pageCount != 0 else { continue }
            found.append(WALTransaction(pageCount: pageCount, frames: self, range: start..<offset + frameLength))
            start = offset + frameLength
        }
        guard start == bytes.count else { throw .gap }
        return found
    }

    /// Returns the `count` transactions after `commit` in a WAL that was restarted since and has not grown to its
    /// former length. Their frames still stand, and the checksum that runs through all frames of a WAL proves it of the
    /// bytes read.
    package static func transactionsInFormerLog(_ log: WALFile, after commit: WriteAheadIndex, count: Int) throws
        -> [WALTransaction]
    {
        var limit = count + count / 2 + 8
        while true {
            let frames = try WALFrames(log, after: commit.lastFrame, upTo: limit, pageSize: commit.pageSize)
            if let found = try frames.transactions(after: commit, count: count) { return found }
            guard frames.bytes.count == limit * frames.frameLength else { throw Unattributable.gap }
            limit *= 2
        }
    }

    /// Returns the first `count` whole transactions, or nil if there are fewer. Throws if a frame before the end of the
    /// last one is damaged or belongs to another WAL.
    private func transactions(
        after commit: WriteAheadIndex, count: Int
    ) throws(Unattributable) -> [WALTransaction]? {
        var found: [WALTransaction] = []
        var running = commit.checksum
        var start = 0
        for offset in stride(from: 0, to: bytes.count, by: frameLength) {
            if found.count == count { break }
            let frame = UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + frameLength])
            guard frame.loadUnaligned(fromByteOffset: 8, as: UInt64.self) == commit.salt else { throw .gap }
            running = running.adding(UnsafeRawBufferPointer(rebasing: frame[..<8]), commit.order)
                .adding(UnsafeRawBufferPointer(rebasing: frame[WALFile.frameHeaderLength...]), commit.order)
            guard running == FrameChecksum(frame.word(16), frame.word(20)) else { throw .gap }
            let pageCount = frame.word(4)
            guard pageCount != 0 else { continue }
            found.append(WALTransaction(pageCount: pageCount, frames: self, range: start..<offset + frameLength))
            start = offset + frameLength
        }
        return found.count == count ? found : nil
    }
}
