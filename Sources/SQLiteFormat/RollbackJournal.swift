import Glibc
import LinuxSystem
import SystemPackage

/// The format of a rollback journal (https://sqlite.org/fileformat2.html, §3).
package enum RollbackJournal {
    /// True if a transaction may have to be rolled back from the journal. When a transaction ends, SQLite zeroes or
    /// truncates the journal's header, or removes the journal (https://sqlite.org/pragma.html#pragma_journal_mode).
    package static func isHot(_ name: FilePath.Component, in directory: Directory) throws(SystemError) -> Bool {
        guard let found = try directory.status(name), found.size > 0 else { return false }
        guard found.kind == .regular else { return true }
        do throws(SystemError) {
            let descriptor = try directory.open(name, flags: O_RDONLY)
            let start = try descriptor.read(count: 1, at: 0, path: directory.path.appending(name))
            return start.first.map { $0 != 0 } ?? false
        } catch {
            // The transaction ended between the two calls.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return false
        }
    }

    private static let magic: [UInt8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]

    /// Returns the path of the super-journal that `bytes`, a journal's end, names. A journal ends with the name, its
    /// length, the sum of its characters, and the magic number that also begins the journal (readSuperJournal,
    /// pager.c). Returns nil if there is no name or one that SQLite would reject.
    package static func superJournal(namedAtEndOf bytes: [UInt8]) -> FilePath? {
        guard bytes.count > 16, bytes.suffix(8) == magic[...] else { return nil }
        let length = Int(number(bytes, fromEnd: 16))
        guard length > 0, length <= bytes.count - 16 else { return nil }
        let name = bytes.dropLast(16).suffix(length)
        let sum = name.reduce(UInt32(0)) { $0 &+ UInt32(bitPattern: Int32(CChar(truncatingIfNeeded: $1))) }
        return sum == number(bytes, fromEnd: 12) ? FilePath(bytes: name) : nil
    }

    private static func number(_ bytes: [UInt8], fromEnd: Int) -> UInt32 {
        bytes.suffix(fromEnd).prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }
}
