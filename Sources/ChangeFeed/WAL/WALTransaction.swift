import LinuxSystem
import SQLiteFormat

/// The frames that one commit wrote.
struct WALTransaction {
    /// Pages of the database at its end.
    let pageCount: UInt32
    private let frames: WALFrames
    /// In the frames' bytes.
    private let range: Range<Int>

    fileprivate init(pageCount: UInt32, _ frames: WALFrames, _ range: Range<Int>) {
        self.pageCount = pageCount
        self.frames = frames
        self.range = range
    }

    /// Calls `body` with each frame's page until it returns false; false then. A page may come twice.
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

    /// By number.
    func pages() -> WALPages {
        var offsets: [UInt32: Int] = [:]
        let length = WALFile.frameHeaderLength + frames.pageSize
        for offset in stride(from: range.lowerBound, to: range.upperBound, by: length) {
            offsets[frames.bytes.word(offset)] = offset + WALFile.frameHeaderLength
        }
        return WALPages(pageCount: pageCount, frames, offsets)
    }
}

/// The pages that one commit wrote; of a page that was written twice, the last.
final class WALPages: PageSource {
    let pageCount: UInt32
    private let frames: WALFrames
    private let offsets: [UInt32: Int]

    fileprivate init(pageCount: UInt32, _ frames: WALFrames, _ offsets: [UInt32: Int]) {
        self.pageCount = pageCount
        self.frames = frames
        // A page that had been written before the transaction gave it up lies behind the database's end.
        self.offsets = offsets.keys.allSatisfy { $0 <= pageCount } ? offsets : offsets.filter { $0.key <= pageCount }
    }

    var changed: some Collection<UInt32> { offsets.keys }
    func isChanged(_ page: UInt32) -> Bool { offsets[page] != nil }

    func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
        guard let offset = offsets[page] else { throw Unattributable.malformed(page: page) }
        return UnsafeRawBufferPointer(rebasing: frames.bytes[offset..<offset + frames.pageSize])
    }
}

/// Frames of a log, read in one go.
final class WALFrames {
    let pageSize: Int
    private let memory: FrameCache
    private var count = 0

    /// Bytes that are read at once: what a larger backlog changed isn't told table by table.
    private static let mostBytes = 64 << 20

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory.bytes[..<(count * frameLength)]) }
    private var frameLength: Int { WALFile.frameHeaderLength + pageSize }

    /// `count` frames behind `frame`.
    private convenience init(_ log: WALFile, after frame: UInt32, count: Int, _ pageSize: Int) throws {
        try self.init(log, after: frame, upTo: count, pageSize)
        guard bytes.count == count * frameLength else { throw Unattributable.gap }
    }

    /// As many whole frames as there are behind `frame`, `most` at most.
    private init(_ log: WALFile, after frame: UInt32, upTo most: Int, _ pageSize: Int) throws {
        self.pageSize = pageSize
        let length = WALFile.frameHeaderLength + pageSize
        guard most <= Self.mostBytes / length, let memory = FrameCache.take(most * length) else {
            throw Unattributable.tooLarge
        }
        self.memory = memory
        count = try log.read(into: memory.bytes, at: WALFile.offset(ofFrame: frame + 1, pageSize)) / length
    }

    deinit { memory.giveBack() }

    /// The transactions behind `frame` up to the last of `commit`. Throws `Unattributable`, `SystemError`.
    ///
    /// Committed frames stay as they are until the log begins anew, and the index says so first: while it has the same
    /// salt after reading, they are what was committed. Their checksums prove less: where a savepoint was rolled back
    /// to after the transaction had been written in part, SQLite before 3.46 leaves committed frames without theirs.
    static func transactions(
        _ log: WALFile, after frame: UInt32, to commit: WriteAheadIndex, _ index: WALIndexFile
    ) throws -> [WALTransaction] {
        guard commit.lastFrame > frame else { throw Unattributable.gap }
        let frames = try WALFrames(log, after: frame, count: Int(commit.lastFrame - frame), commit.pageSize)
        guard try index.stillHas(commit) else { throw Unattributable.gap }
        return try frames.split()
    }

    private func split() throws(Unattributable) -> [WALTransaction] {
        var found: [WALTransaction] = []
        var start = 0
        for offset in stride(from: 0, to: bytes.count, by: frameLength) {
            let pageCount = bytes.word(offset + 4)
            guard pageCount != 0 else { continue }
            found.append(WALTransaction(pageCount: pageCount, self, start..<offset + frameLength))
            start = offset + frameLength
        }
        guard start == bytes.count else { throw .gap }
        return found
    }

    /// The `count` transactions behind `commit` in a log that has begun anew since and is not yet as long as it was: they
    /// are there still, and the checksum that goes through all of a log's frames proves it of the bytes that were read.
    static func remaining(_ log: WALFile, after commit: WriteAheadIndex, count: Int) throws -> [WALTransaction] {
        var most = count + count / 2 + 8
        while true {
            let frames = try WALFrames(log, after: commit.lastFrame, upTo: most, commit.pageSize)
            if let found = try frames.transactions(after: commit, count: count) { return found }
            guard frames.bytes.count == most * frames.frameLength else { throw Unattributable.gap }
            most *= 2
        }
    }

    /// So many whole transactions at the beginning; nil when there are fewer. Throws when a frame before the last one's end
    /// is not of that log, or damaged.
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
            found.append(WALTransaction(pageCount: pageCount, self, start..<offset + frameLength))
            start = offset + frameLength
        }
        return found.count == count ? found : nil
    }
}
