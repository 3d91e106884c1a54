import Glibc
import LinuxSystem
import PersistentStore

/// The pages that one commit wrote; of a page that was written twice, the last.
final class LogTransaction: PageSource {
    let pageCount: UInt32
    private let frames: LogFrames
    private let offsets: [UInt32: Int]

    fileprivate init(pageCount: UInt32, _ frames: LogFrames, _ offsets: [UInt32: Int]) {
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
final class LogFrames {
    let pageSize: Int
    private let buffer: UnsafeMutableRawBufferPointer
    private let isMapped: Bool

    /// From so many bytes on they go back to the system when they aren't needed any more: the allocator would keep them.
    private static let leastMapped = 256 << 10
    /// Bytes that are read at once: what a larger backlog changed isn't told table by table.
    private static let mostBytes = 64 << 20

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(buffer) }
    private var frameLength: Int { LogFile.frameHeaderLength + pageSize }

    /// As many frames as there are behind `frame`, `count` at most.
    private init(_ log: LogFile, after frame: UInt32, count: Int, _ pageSize: Int) throws {
        self.pageSize = pageSize
        let length = LogFile.frameHeaderLength + pageSize
        guard count <= Self.mostBytes / length else { throw Unattributable.tooLarge }
        let whole: UnsafeMutableRawBufferPointer
        if count * length >= Self.leastMapped {
            let mapped = mmap(nil, count * length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            guard let mapped, Int(bitPattern: mapped) != -1 else { throw Unattributable.tooLarge }
            whole = UnsafeMutableRawBufferPointer(start: mapped, count: count * length)
            isMapped = true
        } else {
            whole = .allocate(byteCount: count * length, alignment: 8)
            isMapped = false
        }
        buffer = whole
        let read = try log.read(into: whole, at: LogFile.offset(ofFrame: frame + 1, pageSize))
        guard read == whole.count else { throw Unattributable.gap }
    }

    deinit {
        if isMapped { munmap(buffer.baseAddress, buffer.count) } else { buffer.deallocate() }
    }

    /// The transactions behind `frame` up to the last of `commit`. Throws `Unattributable`, `SystemError`.
    ///
    /// Committed frames stay as they are until the log begins anew, and the index says so first: while it has the same
    /// salt after reading, they are what was committed. Their checksums prove less: where a savepoint was rolled back
    /// to after the transaction had been written in part, SQLite before 3.46 leaves committed frames without theirs.
    static func transactions(
        _ log: LogFile, after frame: UInt32, to commit: WriteAheadIndex, _ index: LogIndex
    ) throws -> [LogTransaction] {
        guard commit.lastFrame > frame else { throw Unattributable.gap }
        let frames = try LogFrames(log, after: frame, count: Int(commit.lastFrame - frame), commit.pageSize)
        guard try index.stillHas(commit) else { throw Unattributable.gap }
        return try frames.split()
    }

    private func split() throws(Unattributable) -> [LogTransaction] {
        var found: [LogTransaction] = []
        var offsets: [UInt32: Int] = [:]
        for offset in stride(from: 0, to: bytes.count, by: frameLength) {
            offsets[bytes.word(offset)] = offset + LogFile.frameHeaderLength
            let pageCount = bytes.word(offset + 4)
            guard pageCount != 0 else { continue }
            found.append(LogTransaction(pageCount: pageCount, self, offsets))
            offsets = [:]
        }
        guard offsets.isEmpty else { throw .gap }
        return found
    }

    /// The `count` transactions behind `commit` in a log that has begun anew since and is not yet as long as it was: they
    /// are there still, and the checksum that goes through all of a log's frames proves it.
    static func remaining(_ log: LogFile, after commit: WriteAheadIndex, count: Int) throws -> [LogTransaction] {
        var running = commit.checksum
        var missing = count
        var frame = commit.lastFrame
        while missing > 0 {
            frame += 1
            guard Int(frame - commit.lastFrame) * (LogFile.frameHeaderLength + commit.pageSize) <= mostBytes else {
                throw Unattributable.tooLarge
            }
            let one = try LogFrames(log, after: frame - 1, count: 1, commit.pageSize)
            guard let sum = one.checksum(after: running, commit) else { throw Unattributable.gap }
            running = sum
            if one.bytes.word(4) != 0 { missing -= 1 }
        }
        guard frame > commit.lastFrame else { return [] }
        let frames = try LogFrames(log, after: commit.lastFrame, count: Int(frame - commit.lastFrame), commit.pageSize)
        // Read again, and so proved again.
        guard frames.checksum(after: commit.checksum, commit) == running else { throw Unattributable.gap }
        return try frames.split()
    }

    /// The checksum up to the last frame; nil when one is not of that log, or damaged.
    private func checksum(after start: FrameChecksum, _ commit: WriteAheadIndex) -> FrameChecksum? {
        var running = start
        for offset in stride(from: 0, to: bytes.count, by: frameLength) {
            let frame = UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + frameLength])
            guard frame.loadUnaligned(fromByteOffset: 8, as: UInt64.self) == commit.salt else { return nil }
            running = running.adding(UnsafeRawBufferPointer(rebasing: frame[..<8]), commit.order)
                .adding(UnsafeRawBufferPointer(rebasing: frame[LogFile.frameHeaderLength...]), commit.order)
            guard running == FrameChecksum(frame.word(16), frame.word(20)) else { return nil }
        }
        return running
    }
}
