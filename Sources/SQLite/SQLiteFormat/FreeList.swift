import LinuxSystem
import SystemPackage

/// The freelist of a database (https://sqlite.org/fileformat2.html, §1.5).
package enum FreeList {
    /// Calls `body` with each leaf, and the trunk that lists it. Reads the database's file alone, not a log beside it.
    ///
    /// A list that contradicts the header ends there: whoever needs to know of damage asks SQLite first. Throws
    /// `SystemError` and what `body` throws.
    package static func forEachLeaf(
        _ database: borrowing Descriptor, path: FilePath, _ body: (_ leaf: UInt32, _ trunk: UInt32) throws -> Void
    ) throws {
        let bytes = try database.read(count: DatabaseHeader.length, at: 0, path: path)
        guard let header = DatabaseHeader(bytes) else { return }
        var (trunk, left) = bytes.withUnsafeBytes { ($0.word(32), $0.word(36)) }
        while trunk >= 2, left > 0 {
            let page = try database.read(
                count: header.pageSize, at: Int64(trunk - 1) * Int64(header.pageSize), path: path)
            guard page.count == header.pageSize else { return }
            let (next, leaves) = page.withUnsafeBytes { page in
                (page.word(0), (0..<min(Int(page.word(4)), page.count / 4 - 2)).map { page.word(8 + 4 * $0) })
            }
            for leaf in leaves { try body(leaf, trunk) }
            left -= min(left, UInt32(leaves.count) + 1)
            trunk = next
        }
    }
}
