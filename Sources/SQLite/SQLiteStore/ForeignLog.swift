import CSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A write-ahead log of another database beside a store. SQLite would replay it into the store.
package struct ForeignLog: Equatable, Sendable {
    package let path: FilePath
    package let mismatch: LogMismatch

    /// A sentence about the log.
    package var description: String {
        "\(PrintablePath(path)) is the write-ahead log of another database: \(mismatch)"
    }
}

extension StoreLocation {
    /// Returns the log beside this store if it is proved to be another database's.
    ///
    /// This process must have no connection to the store (https://sqlite.org/howtocorrupt.html, §2.2).
    package func foreignLog() throws -> ForeignLog? {
        try foreignLog { [directory, name] body in
            let database = try directory.open(name.database, flags: O_RDONLY)
            let path = directory.path.appending(name.database)
            return try body(database.status(path: path).size) { try database.read(count: $0, at: $1, path: path) }
        }
    }

    /// Returns the same, with a database that `open` reads.
    ///
    /// A program that writes both files meanwhile could make them contradict each other, so they must not have changed
    /// while they were read. Any state of both at one moment is one that a crash may leave.
    func foreignLog(
        reading open: (
            _ body: (_ size: Int64, _ read: (_ count: Int, _ offset: Int64) throws -> [UInt8]) throws -> LogMismatch?
        ) throws -> LogMismatch?
    ) throws -> ForeignLog? {
        let path = directory.path.appending(name.wal)
        for _ in 0..<5 {
            let before = try FileFingerprint(self)
            guard let wal = before.wal, wal.kind == .regular, wal.size > 0 else { return nil }
            guard let mismatch = try open({ try logMismatch(databaseSize: $0, $1) }) else { return nil }
            if try before.isSettled && FileFingerprint(self) == before {
                return ForeignLog(path: path, mismatch: mismatch)
            }
            pause(FileTime.resolution)
        }
        return nil
    }

    private func logMismatch(
        databaseSize size: Int64, _ read: (_ count: Int, _ offset: Int64) throws -> [UInt8]
    ) throws -> LogMismatch? {
        do {
            let log = try directory.open(name.wal, flags: O_RDONLY)
            return try LogMismatch.find(
                in: log, path: directory.path.appending(name.wal), databaseSize: size, read)
        } catch let error as SystemError where error.errno == .noSuchFileOrDirectory {
            // A program's last connection has removed it.
            return nil
        }
    }
}

extension FileFingerprint {
    /// True if any later write to the database or its log changes this fingerprint.
    fileprivate var isSettled: Bool {
        [database, wal].allSatisfy { $0.map { FileTime.isSettled($0.modified) } ?? true }
    }
}

extension SQLiteConnection {
    /// Throws `StoreError.foreignLog`. Called before the connection's first read, which would replay the log.
    ///
    /// Reads the database through SQLite's own descriptor: closing another one would drop the locks of this process's
    /// other connections (https://sqlite.org/howtocorrupt.html, §2.2).
    func checkLog(beside location: StoreLocation) throws {
        let found = try location.foreignLog { body in
            var opened: UnsafeMutablePointer<sqlite3_file>?
            let code = sqlite3_file_control(connection, "main", SQLITE_FCNTL_FILE_POINTER, &opened)
            guard code == SQLITE_OK, let file = opened, let methods = file.pointee.pMethods?.pointee,
                let xRead = methods.xRead, let xFileSize = methods.xFileSize
            else { throw StoreError(code: SQLITE_ERROR, message: "the database's file can't be read", path: path) }
            var size: sqlite3_int64 = 0
            let sizeCode = xFileSize(file, &size)
            guard sizeCode == SQLITE_OK else { throw error(sizeCode) }
            return try body(size) { count, offset in
                var bytes = [UInt8](repeating: 0, count: count)
                let readCode = xRead(file, &bytes, Int32(count), offset)
                // SQLite fills what lies beyond the end with zeros.
                guard readCode == SQLITE_OK || readCode == Self.shortRead else { throw error(readCode) }
                return bytes
            }
        }
        if let found { throw StoreError.foreignLog(found.path, found.mismatch) }
    }

    /// SQLITE_IOERR_SHORT_READ, which Swift doesn't import.
    private static let shortRead = SQLITE_IOERR | 2 << 8
}
