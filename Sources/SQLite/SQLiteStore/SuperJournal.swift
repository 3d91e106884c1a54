import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The file that decides whether a transaction over several stores was committed.
package enum SuperJournal {
    /// Throws `StoreError.superJournalElsewhere` if SQLite, opening the store here, might wrongly treat an unfinished
    /// transaction over several stores as committed.
    ///
    /// Removing the super-journal commits such a transaction. The journals name it by its absolute path
    /// (https://www.sqlite.org/atomiccommit.html, §5). For a store in a container's volume, or in a directory that was
    /// moved since, that path may lead nowhere, and SQLite rolls nothing back. Throws `StoreError.busy` while the
    /// transaction is under way.
    package static func check(of location: StoreLocation) throws {
        guard let path = try name(in: location), !canResolve(path, from: location) else { return }
        try location.checkNotWriting()
        throw StoreError.superJournalElsewhere(path, location.path)
    }

    /// Returns the path of the super-journal that the store's journal names; nil if it names none.
    package static func name(in location: StoreLocation) throws(SystemError) -> FilePath? {
        let file = location.name.journal
        do throws(SystemError) {
            guard let size = try location.directory.status(file)?.size, size > 0 else { return nil }
            let descriptor = try location.directory.open(file, flags: O_RDONLY)
            let start = max(0, size - Int64(maxTailLength))
            return RollbackJournal.superJournal(
                namedAtEndOf: try descriptor.read(
                    count: maxTailLength, at: start, path: location.directory.path.appending(file)))
        } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    /// True if the path is valid here: the super-journal exists, it would be in this very directory, or the store that
    /// it is named after exists there and not here.
    private static func canResolve(_ path: FilePath, from location: StoreLocation) -> Bool {
        guard path.isAbsolute, let last = path.lastComponent else { return false }
        if FileStatus(following: path) != nil { return true }
        let directory = FileStatus(following: path.removingLastComponent())
        let own = try? location.directory.status()
        if let directory, let own, directory.identity == own.identity { return true }
        let isHere = (try? location.directory.status(last)) != nil
        return !isHere && FilePath(bytes: path.bytes.dropLast(suffixLength)).flatMap(FileStatus.init(following:)) != nil
    }

    /// The length of `-mj` and nine hexadecimal digits, which follow the name of the transaction's first store
    /// (sqlite3VdbeHalt, vdbeaux.c).
    private static let suffixLength = 12
    /// SQLite's longest path and the fields around it.
    private static let maxTailLength = 4096 + 24
}
