import LinuxSystem
import PersistentStore

/// The transactions between two positions in a log, read in one go.
///
/// Committed frames stay as they are until the log begins anew, and the index says so first: while it has the same salt
/// after reading, they are what was committed. The checksums of the frames prove less: where a savepoint was rolled back
/// to after the transaction had been written in part, SQLite before 3.46 leaves committed frames without theirs.
final class LogTransactions {
    /// One commit's pages; of a page that was written twice, the last.
    final class Transaction: PageSource {
        let pageCount: UInt32
        private let frames: UnsafeRawBufferPointer
        private let pageSize: Int
        private let offsets: [UInt32: Int]

        fileprivate init(pageCount: UInt32, _ frames: UnsafeRawBufferPointer, _ pageSize: Int, _ offsets: [UInt32: Int])
        {
            self.pageCount = pageCount
            self.frames = frames
            self.pageSize = pageSize
            // A page that had been written before the transaction gave it up lies behind the database's end.
            self.offsets = offsets.filter { $0.key <= pageCount }
        }

        var changed: some Collection<UInt32> { offsets.keys }
        func isChanged(_ page: UInt32) -> Bool { offsets[page] != nil }

        func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
            guard let offset = offsets[page] else { throw Unattributable.malformed(page: page) }
            return UnsafeRawBufferPointer(rebasing: frames[offset..<offset + pageSize])
        }
    }

    private let buffer: UnsafeMutableRawBufferPointer
    private(set) var all: [Transaction] = []

    /// Bytes that are read at once: what a larger backlog changed isn't told table by table.
    static let mostBytes = 64 << 20

    /// Reads the frames behind `frame` up to the last of `commit`; `index` is what says whether the log has begun anew.
    /// Throws `Unattributable`, `SystemError`.
    init(_ log: LogFile, after frame: UInt32, to commit: WriteAheadIndex, _ index: LogIndex) throws {
        let length = LogFile.frameHeaderLength + commit.pageSize
        guard commit.lastFrame > frame else { throw Unattributable.gap }
        let count = Int(commit.lastFrame - frame)
        guard count <= Self.mostBytes / length else { throw Unattributable.tooLarge }
        buffer = .allocate(byteCount: count * length, alignment: 8)
        let read = try log.read(into: buffer, at: LogFile.offset(ofFrame: frame + 1, commit.pageSize))
        guard read == buffer.count, try index.stillHas(commit) else { throw Unattributable.gap }
        try split(length)
    }

    deinit { buffer.deallocate() }

    private func split(_ length: Int) throws(Unattributable) {
        let frames = UnsafeRawBufferPointer(buffer)
        var offsets: [UInt32: Int] = [:]
        for offset in stride(from: 0, to: frames.count, by: length) {
            offsets[frames.word(offset)] = offset + LogFile.frameHeaderLength
            let pageCount = frames.word(offset + 4)
            if pageCount != 0 {
                all.append(Transaction(pageCount: pageCount, frames, length - LogFile.frameHeaderLength, offsets))
                offsets = [:]
            }
        }
        guard offsets.isEmpty else { throw .gap }
    }
}
