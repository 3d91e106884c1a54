import CSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A connection that reads a store through SQLite and leaves no trace of it. Confined to one thread.
///
/// While it reads, this process must have no connection of its own to the store: the descriptors that it opens and
/// closes would drop that connection's locks (https://sqlite.org/howtocorrupt.html, §2.2).
package final class StoreReader: SQLiteConnection {
    package let location: StoreLocation
    /// The header in the file, or nil if a hot journal holds a newer one.
    package let header: DatabaseHeader?
    /// The copy that is read instead of the store, if one is needed.
    private let copy: PrivateCopy?
    private let method: ReadingMethod
    /// The descriptor from which the database was copied. To close it releases the connection's locks, so it stays open
    /// until nothing is read any more.
    private var copiedDescriptor: HeldDescriptor?
    /// True if the connection was used before this read, and its store is the same as then but for what was written.
    package private(set) var isReused = false

    /// True if other programs' writes are locked out or invisible while the connection reads.
    package var takesLocks: Bool { method.takesLocks }

    /// True if no side file is read.
    package var readsDatabaseOnly: Bool { method == .immutable }

    /// Runs `body` on one consistent state of the store.
    ///
    /// If the state is read without locks and the files changed meanwhile, `body` runs again, at most three times in
    /// all. The method waits at most `busyTimeout` for another program's lock. Throws `StoreError`, `SystemError` if
    /// the files can't be reached, and the errors of `body`.
    package static func read<Success>(
        _ location: StoreLocation, busyTimeout: Duration = .seconds(2), _ body: (StoreReader) throws -> Success
    ) throws -> Success {
        try read(location, busyTimeout: busyTimeout, keep: nil, body)
    }

    /// Reads like the other method.
    ///
    /// - Parameter keep: Gets the connection afterwards, if it can read again, and the files that it has open.
    static func read<Success>(
        _ location: StoreLocation, busyTimeout: Duration = .seconds(2),
        keep: ((StoreReader, FileFingerprint) -> Void)?, _ body: (StoreReader) throws -> Success
    ) throws -> Success {
        let deadline = Deadline(after: busyTimeout)
        for _ in 0..<3 {
            let preparation = try ReadingPreparation(location, deadline: deadline)
            var last: StoreReader?
            let (outcome, takesLocks) = attempt(preparation, location: location, deadline: deadline) { reader in
                guard keep != nil else { return try body(reader) }
                reader.statementCache = StatementCache()
                let success = try body(reader)
                last = reader
                return success
            }
            // Without a lock, the change may have affected any result or error. Even with a lock, it may have caused
            // SQLite's errors.
            let footprint = try FileFingerprint(location)
            guard footprint == preparation.footprint || takesLocks && !outcome.isStoreError else { continue }
            if let keep, let last, footprint.hasFiles(of: preparation.footprint), try last.endRead() {
                keep(last, footprint)
            }
            return try outcome.get()
        }
        throw StoreError.busy(location.path)
    }

    private static func attempt<Success>(
        _ preparation: ReadingPreparation, location: StoreLocation, deadline: Deadline,
        _ body: (StoreReader) throws -> Success
    ) -> (outcome: Result<Success, any Error>, takesLocks: Bool) {
        var method = preparation.method
        while true {
            do {
                let reader = try StoreReader(location, method: method, header: preparation.header, deadline: deadline)
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
        _ location: StoreLocation, method: ReadingMethod, header: DatabaseHeader?, deadline: Deadline
    ) throws {
        try ReadingVFS.register()
        self.location = location
        self.header = header
        self.method = method
        if method == .copy { try SuperJournal.check(of: location) }
        copy = method == .copy ? try PrivateCopy(of: location) : nil
        let uri = "file:" + (copy?.location ?? location).encodedPath + "?" + method.parameters
        let access = method == .copy ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY
        try super.init(opening: uri, of: location.path, flags: access | SQLITE_OPEN_URI)
        if method != .copy { try location.checkOpened(location.granted) }
        let wait = deadline.remaining.map { $0.seconds * 1000 } ?? 0
        sqlite3_busy_timeout(connection, Int32(min(wait, 1e9)))
        try SQLiteLibrary.disableCheckpoints(connection, of: location.path)
        if method == .unlockedWAL { try execute("PRAGMA locking_mode = EXCLUSIVE") }
        try distrustSchema()
        try execute("BEGIN")
        try execute("SELECT count(*) FROM sqlite_schema")
    }

    /// Ends the transaction. Returns false if the connection can't read the store's next state.
    private func endRead() throws -> Bool {
        guard method == .lockedWAL || method == .markedWAL else { return false }
        try execute("COMMIT")
        isReused = true
        return true
    }

    /// Begins to read another state, the store's present one, after `endRead` or COMMIT.
    func beginNextRead() throws {
        try execute("BEGIN")
        try execute("SELECT count(*) FROM sqlite_schema")
    }

    /// Copies the database as read to a database file that nobody else uses. The kernel copies the file if that has the
    /// whole state; otherwise SQLite copies page by page (https://sqlite.org/backup.html).
    ///
    /// - Parameter isTemporary: True for a copy that is removed soon, so that the disk need not get it.
    package func copy(to path: FilePath, isTemporary: Bool = false) throws {
        if try copyFile(to: path, isTemporary: isTemporary) { return }
        let target = try StoreWriter(path)
        try target.execute("PRAGMA journal_mode = OFF")
        try target.execute("PRAGMA synchronous = OFF")
        try target.copyContent(from: connection)
    }

    /// Copies the file. Returns false, with an empty file at `path`, if the state isn't that of the file.
    private func copyFile(to path: FilePath, isTemporary: Bool) throws -> Bool {
        // With either method the connection reads nothing but the file. With a lock the file can't change; without one,
        // `read` finds out if it did.
        guard method == .locked || method == .immutable else { return false }
        let held = HeldDescriptor(try location.directory.open(location.name.database, flags: O_RDONLY))
        copiedDescriptor = held
        let status = try held.descriptor.status(path: location.path)
        try location.check(status.identity)
        let bytes = try held.descriptor.read(count: DatabaseHeader.length, at: 0, path: location.path)
        guard let header = DatabaseHeader(bytes), header.minimumSize == status.size else { return false }
        let target = try Descriptor(opening: path, flags: O_WRONLY)
        // What was truncated, ext4 begins to write to the disk when it is closed, even if it was empty before.
        if try !isTemporary || target.status(path: path).size > 0 { try target.truncate(to: 0, path: path) }
        var copy = FileCopy(from: location.path, to: path)
        copy.maximumSize = status.size
        let copied = try copy.run(from: held.descriptor, to: target)
        guard copied.bytes == status.size else {
            try target.truncate(to: 0, path: path)
            return false
        }
        // A rollback journal: nobody else may leave a log beside the copy.
        try target.write([1, 1], at: 18, path: path)
        return true
    }
}

/// A descriptor that is closed with the last reference.
private final class HeldDescriptor {
    let descriptor: Descriptor
    init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }
}

extension ReadingMethod {
    /// Returns another method to try if this one failed for a reason that the files did not show.
    func alternative(after error: StoreError) -> ReadingMethod? {
        guard case .sqlite(let code, _, _) = error else { return nil }
        return switch (self, code) {
        case (.locked, Self.readOnlyRollback), (.lockedWAL, Self.readOnlyRollback): .copy
        case (.lockedWAL, Self.readOnlyCannotInitialize), (.lockedWAL, Self.readOnlyRecovery): .markedWAL
        default: nil
        }
    }

    /// Extended result codes (https://sqlite.org/rescode.html), which Swift doesn't import from C macros.
    private static let readOnlyRecovery = SQLITE_READONLY | 1 << 8
    private static let readOnlyRollback = SQLITE_READONLY | 3 << 8
    private static let readOnlyCannotInitialize = SQLITE_READONLY | 5 << 8
}

extension Result {
    fileprivate var isStoreError: Bool {
        if case .failure(let error) = self { error is StoreError } else { false }
    }
}
