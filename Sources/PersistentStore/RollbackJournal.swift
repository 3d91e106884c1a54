import Glibc
import LinuxSystem
import SystemPackage

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

    /// Throws `StoreError.superJournalElsewhere` where SQLite, opening the store here, would take a transaction over
    /// several stores for committed though it may not have been.
    ///
    /// Such a transaction is committed by removing its super-journal, which the journals name by its whole path
    /// (https://www.sqlite.org/atomiccommit.html, §5). Of a store in a container's volume, or in a directory that was moved
    /// since, that path may lead nowhere, and nothing is rolled back then. Throws `StoreError.busy` while it is under way.
    package static func checkSuperJournal(of location: StoreLocation) throws {
        let file = location.name.journal
        let bytes: [UInt8]
        do throws(SystemError) {
            guard let size = try location.directory.status(file)?.size, size > 0 else { return }
            let descriptor = try location.directory.open(file, flags: O_RDONLY)
            let start = max(0, size - Int64(longestEnd))
            bytes = try descriptor.read(count: longestEnd, at: start, path: location.directory.path.appending(file))
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return
        }
        guard let path = superJournal(namedAtEndOf: bytes), !canTell(of: path, location) else { return }
        try location.checkNotWriting()
        throw StoreError.superJournalElsewhere(path, location.path)
    }

    /// Whether the name holds here: the super-journal is there; it would be in this very directory; or the store that it
    /// is named after is there, and not here.
    private static func canTell(of path: FilePath, _ location: StoreLocation) -> Bool {
        guard path.isAbsolute, let last = path.lastComponent else { return false }
        if FileStatus(following: path) != nil { return true }
        let directory = FileStatus(following: path.removingLastComponent())
        let own = try? location.directory.status()
        if let directory, let own, directory.identity == own.identity { return true }
        let isHere = (try? location.directory.status(last)) != nil
        return !isHere && FilePath(bytes: path.bytes.dropLast(suffixLength)).flatMap(FileStatus.init(following:)) != nil
    }

    /// Of `-mj` and nine hexadecimal digits behind the name of the transaction's first store (sqlite3VdbeHalt, vdbeaux.c).
    private static let suffixLength = 12
    /// A path, SQLite's longest, and what is written around it.
    private static let longestEnd = 4096 + 24
    private static let magic: [UInt8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]

    /// At a journal's end: the name, its length, the sum of its characters, and the magic number that is at the start as
    /// well (readSuperJournal, pager.c). Nil where none is, or one that SQLite takes for none.
    static func superJournal(namedAtEndOf bytes: [UInt8]) -> FilePath? {
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
