import LinuxSystem
import SystemPackage

extension WriteAheadLog {
    /// True if a database has each page of a log as of the log's last commit: all that was committed to the log is in
    /// the database, whoever put it there. False also for a log that may have lost a commit, because its header or the
    /// frame after the last valid one is damaged.
    ///
    /// - Parameter path: The log's, for errors.
    package static func isCheckpointed(
        _ log: borrowing Descriptor, into database: borrowing Descriptor, path: FilePath
    ) throws -> Bool {
        let header = try log.read(count: headerLength, at: 0, path: path)
        // An empty log has no commit.
        guard !header.isEmpty else { return true }
        guard let start = Start(header) else { return false }
        let frameLength = frameHeaderLength + start.pageSize
        func offset(_ frame: Int) -> Int64 { Int64(headerLength) + Int64(frame) * Int64(frameLength) }
        var (frameCount, pageCount) = (0, UInt32(0))
        // The last frame of each page.
        var (written, committed): ([UInt32: Int], [UInt32: Int]) = ([:], [:])
        try forEachSizedFrame(log, path: path) { page, _, committedSize in
            written[page] = frameCount
            frameCount += 1
            guard committedSize > 0 else { return true }
            pageCount = committedSize
            committed.merge(written) { $1 }
            written = [:]
            return true
        }
        // A transaction that was rolled back leaves such a frame too.
        let next = try log.read(count: frameHeaderLength, at: offset(frameCount), path: path)
        guard next.count < frameHeaderLength || !next[8..<16].elementsEqual(header[16..<24]) else { return false }
        for (page, frame) in committed where page > 0 && page <= pageCount {
            let logged = try log.read(
                count: start.pageSize, at: offset(frame) + Int64(frameHeaderLength), path: path)
            let stored = try database.read(count: start.pageSize, at: Int64(page - 1) * Int64(start.pageSize))
            guard logged.count == start.pageSize, content(logged, of: page) == content(stored, of: page) else {
                return false
            }
        }
        return true
    }

    /// Returns a page without what a change of the journal mode and any commit write to the database's header: the
    /// format versions, the change counters and SQLite's version (https://sqlite.org/fileformat2.html, §1.3).
    private static func content(_ bytes: [UInt8], of page: UInt32) -> [UInt8] {
        guard page == 1, bytes.count >= DatabaseHeader.length else { return bytes }
        var bytes = bytes
        for field in [18..<20, 24..<28, 92..<100] {
            for position in field { bytes[position] = 0 }
        }
        return bytes
    }
}
