import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The file that decides whether a transaction over several stores was committed.
package enum SuperJournal {
    /// Throws `StoreError.superJournalElsewhere` where SQLite, opening the store here, would take a transaction over
    /// several stores for committed though it may not have been.
    ///
    /// Such a transaction is committed by removing its super-journal, which the journals name by its whole path
    /// (https://www.sqlite.org/atomiccommit.html, §5). Of a store in a container's volume, or in a directory that was moved
    /// since, that path may lead nowhere, and nothing is rolled back then. Throws `StoreError.busy` while it is under way.
    package static func check(of location: StoreLocation) throws {
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
        guard let path = RollbackJournal.superJournal(namedAtEndOf: bytes), !canTell(of: path, location) else { return }
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
}
