import GRDBSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Reads a store through SQLite and leaves no trace of it. One thread's.
///
/// While it reads, this process must have no connection of its own to the store: the descriptors that it opens and
/// closes would drop that connection's locks (https://sqlite.org/howtocorrupt.html, §2.2).
package final class StoreReader: SQLiteConnection {
    package let location: StoreLocation
    /// The header as it stands in the file; nil when a hot journal has a newer one.
    package let header: DatabaseHeader?
    /// What is read in place of the store, when it isn't the store itself.
    private let copy: PrivateCopy?

    /// Runs `body` on one consistent state of the store.
    ///
    /// Where that is read without locks, it is run again when the files changed meanwhile, three times at most.
    /// Waits `busyTimeout` at most for another program's lock. Throws `StoreError`, `SystemError` where the files
    /// can't be reached, and what `body` throws.
    package static func read<Success>(
        _ location: StoreLocation, busyTimeout: Duration = .seconds(2), _ body: (StoreReader) throws -> Success
    ) throws -> Success {
        let deadline = Deadline(after: busyTimeout)
        for _ in 0..<3 {
            let preparation = try ReadingPreparation(location, deadline: deadline)
            let (outcome, takesLocks) = attempt(preparation, deadline, location, body)
            // What was read, or thrown, may be the change's doing where no lock kept it out; what SQLite says, even there.
            let isUnchanged = try FileFingerprint(location) == preparation.footprint
            if isUnchanged || takesLocks && !outcome.isStoreError { return try outcome.get() }
        }
        throw StoreError.busy(location.path)
    }

    private static func attempt<Success>(
        _ preparation: ReadingPreparation, _ deadline: Deadline, _ location: StoreLocation,
        _ body: (StoreReader) throws -> Success
    ) -> (outcome: Result<Success, any Error>, takesLocks: Bool) {
        var method = preparation.method
        while true {
            do {
                let reader = try StoreReader(location, method, preparation.header, deadline)
                return (.success(try body(reader)), method.takesLocks)
            } catch let error as StoreError {
                guard let other = method.alternative(after: error) else { return (.failure(error), method.takesLocks) }
                method = other
            } catch {
                return (.failure(error), method.takesLocks)
            }
        }
    }

    private init(
        _ location: StoreLocation, _ method: ReadingMethod, _ header: DatabaseHeader?, _ deadline: Deadline
    ) throws {
        try ReadingVFS.register()
        self.location = location
        self.header = header
        if method == .copy { try SuperJournal.check(of: location) }
        copy = method == .copy ? try PrivateCopy(of: location) : nil
        let uri = "file:" + (copy?.location ?? location).encodedPath + "?" + method.parameters
        let access = method == .copy ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY
        try super.init(opening: uri, of: location.path, flags: access | SQLITE_OPEN_URI)
        if method != .copy { try location.checkOpened(location.granted) }
        let wait = deadline.remaining.map { $0.seconds * 1000 } ?? 0
        sqlite3_busy_timeout(connection, Int32(min(wait, 1e9)))
        try SQLiteLibrary.leaveLogAlone(connection, of: location.path)
        if method == .unlockedLog { try execute("PRAGMA locking_mode = EXCLUSIVE") }
        try distrustSchema()
        try execute("BEGIN")
        try execute("SELECT count(*) FROM sqlite_schema")
    }

    /// Copies what is read, page by page, to a database file that nobody else has (https://sqlite.org/backup.html).
    package func copy(to path: FilePath) throws {
        let target = try StoreWriter(path)
        try target.execute("PRAGMA journal_mode = OFF")
        try target.execute("PRAGMA synchronous = OFF")
        try target.receive(connection)
    }
}

extension ReadingMethod {
    /// Another way to read, where this one failed for a reason that the files did not show.
    func alternative(after error: StoreError) -> ReadingMethod? {
        guard case .sqlite(let code, _, _) = error else { return nil }
        return switch (self, code) {
        case (.locked, Self.readOnlyRollback), (.lockedLog, Self.readOnlyRollback): .copy
        case (.lockedLog, Self.readOnlyCannotInitialize), (.lockedLog, Self.readOnlyRecovery): .markedLog
        default: nil
        }
    }

    /// Extended result codes (https://sqlite.org/rescode.html), which Swift doesn't get from C's macros.
    private static let readOnlyRecovery = SQLITE_READONLY | 1 << 8
    private static let readOnlyRollback = SQLITE_READONLY | 3 << 8
    private static let readOnlyCannotInitialize = SQLITE_READONLY | 5 << 8
}

extension Result {
    fileprivate var isStoreError: Bool {
        if case .failure(let error) = self { error is StoreError } else { false }
    }
}
