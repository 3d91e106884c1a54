import Glibc
import LinuxSystem
import SystemPackage

/// A rollback journal's bytes (https://sqlite.org/fileformat2.html, §3).
package enum RollbackJournal {
    /// Whether a transaction may have to be rolled back from it. SQLite zeroes or truncates a journal's header, or
    /// removes the journal, when a transaction ends (https://sqlite.org/pragma.html#pragma_journal_mode).
    package static func isHot(_ name: FilePath.Component, in directory: Directory) throws(SystemError) -> Bool {
        guard let found = try directory.status(name), found.size > 0 else { return false }
        guard found.kind == .regular else { return true }
        do throws(SystemError) {
            let descriptor = try directory.open(name, flags: O_RDONLY)
            let start = try descriptor.read(count: 1, at: 0, path: directory.path.appending(name))
            return start.first.map { $0 != 0 } ?? false
        } catch {
            // Its transaction ended between the two calls.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return false
        }
    }

    private static let magic: [UInt8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]

    /// At a journal's end: the name, its length, the sum of its characters, and the magic number that is at the start as
    /// well (readSuperJournal, pager.c). Nil where none is, or one that SQLite takes for none.
    package static func superJournal(namedAtEndOf bytes: [UInt8]) -> FilePath? {
        guard bytes.count > 16, bytes.suffix(8) == magic[...] else { return nil }
        let length = Int(number(bytes, 16))
        guard length > 0, length <= bytes.count - 16 else { return nil }
        let name = bytes.dropLast(16).suffix(length)
        let sum = name.reduce(UInt32(0)) { $0 &+ UInt32(bitPattern: Int32(CChar(truncatingIfNeeded: $1))) }
        return sum == number(bytes, 12) ? FilePath(bytes: name) : nil
    }

    private static func number(_ bytes: [UInt8], _ fromEnd: Int) -> UInt32 {
        bytes.suffix(fromEnd).prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }
}
