import CSQLite
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// An error that prevents reading or writing a store.
package enum StoreError: ActionableError, Equatable {
    /// The file does not exist.
    case missing(FilePath)
    /// The file is a directory, a FIFO or a device.
    case notAFile(FilePath)
    /// The file is not a SQLite 3 database.
    case foreign(FileFormat, FilePath)
    /// A database has the name of one of the store's side files. SQLite would remove it or write over it.
    case sideFileIsDatabase(FilePath)
    /// The write-ahead log beside the store is another database's, for this reason. SQLite would replay it.
    case foreignLog(FilePath, LogMismatch)
    /// SQLite or the header reports damage, with the result code (https://sqlite.org/rescode.html).
    case corrupt(code: Int32, message: String, FilePath)
    /// Another program keeps the store locked, or keeps changing it. The code and message are SQLite's, or those that
    /// it would give.
    case busy(FilePath, code: Int32 = SQLITE_BUSY, message: String = "database is locked")
    /// The outcome of the last transaction, which spanned several stores, can't be determined here. The first path is
    /// the super-journal's, as the journal names it.
    case superJournalElsewhere(FilePath, FilePath)
    /// Any other result code of SQLite.
    case sqlite(code: Int32, message: String, FilePath)

    /// Classifies an extended result code.
    ///
    /// - Parameter errno: The system's error that led to it; 0 for none. Without an inode for a log or a journal,
    ///   SQLite only says that it can't open the database.
    package init(code: Int32, message: String, path: FilePath, errno: Int32 = 0) {
        let path = path.namingItsDirectory
        if [SQLITE_CANTOPEN, SQLITE_IOERR].contains(code & 0xFF), [ENOSPC, EDQUOT].contains(errno) {
            self = .sqlite(code: SQLITE_FULL, message: String(cString: sqlite3_errstr(SQLITE_FULL)), path)
            return
        }
        self =
            switch code & 0xFF {
            case SQLITE_CORRUPT, SQLITE_NOTADB: .corrupt(code: code, message: message, path)
            case SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL: .busy(path, code: code, message: message)
            default: .sqlite(code: code, message: message, path)
            }
    }

    package var path: FilePath {
        switch self {
        case .missing(let path), .notAFile(let path), .foreign(_, let path), .sideFileIsDatabase(let path),
            .foreignLog(let path, _), .corrupt(_, _, let path),
            .busy(let path, _, _), .superJournalElsewhere(_, let path), .sqlite(_, _, let path):
            path
        }
    }
}

extension StoreError {
    /// SQLite's extended result code (https://sqlite.org/rescode.html), or nil if SQLite has not opened the store.
    package var code: Int32? {
        switch self {
        case .busy(_, let code, _), .corrupt(let code, _, _), .sqlite(let code, _, _): code
        case .missing, .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .superJournalElsewhere: nil
        }
    }

    /// SQLite's message, or the whole description if it isn't SQLite's error.
    package var sqliteMessage: String {
        switch self {
        case .busy(_, _, let message), .corrupt(_, let message, _), .sqlite(_, let message, _): message
        case .missing, .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .superJournalElsewhere: description
        }
    }

    /// SQLite's message without the path, or the whole description if SQLite gave none.
    package var reason: String {
        switch self {
        case .sqlite(_, let message, _), .corrupt(_, let message, _): message
        default: description
        }
    }
}

extension StoreError {
    package var errorCode: String {
        switch self {
        case .missing: "no_such_store"
        case .notAFile: "not_a_file"
        case .foreign: "not_a_database"
        case .sideFileIsDatabase: "bad_name"
        case .foreignLog: "foreign_log"
        case .corrupt: "corrupt"
        case .busy: "in_use"
        case .superJournalElsewhere: "super_journal"
        case .sqlite: isPermission ? "not_permitted" : "sqlite_error"
        }
    }

    package var errorPath: FilePath? { path }

    package var message: String {
        let place = PrintablePath(path)
        return switch self {
        case .missing: "\(place): no such file"
        case .notAFile: "\(place): not a regular file"
        case .foreign(let format, _): "\(place): not a SQLite database, but \(format)"
        case .sideFileIsDatabase:
            "\(place) is a database, and SQLite would remove it when the store without that suffix is opened"
        case .foreignLog(_, let mismatch):
            "\(place) is the write-ahead log of another database, and SQLite would replay it: \(mismatch)"
        case .corrupt(let code, let message, _): "\(place): the database is damaged: \(message) (SQLite error \(code))"
        case .busy: "\(place): another program keeps it locked or keeps changing it"
        case .superJournalElsewhere(let name, _):
            "\(place): its last transaction spanned several stores, and the super-journal \(PrintablePath(name)), "
                + "which decides whether it was committed, can't be found from here"
        case .sqlite(let code, let message, _): "\(place): \(message) (SQLite error \(code))"
        }
    }

    /// The remedy for a damaged database: puts what SQLite can still read into a new file beside it.
    package static func recovery(of path: FilePath) -> String {
        "save what can be read: sqlite3 \(path.shellWord) .recover | "
            + "sqlite3 \(path.appending(suffix: ".recovered").shellWord)"
    }

    /// The suggested action, in one line.
    package var remedy: String {
        switch self {
        case .missing: "check the path"
        case .notAFile: "name the store's database file"
        case .foreign(.writeAheadLog, let path), .foreign(.rollbackJournal, let path):
            path.databaseOfSideFile.map { "name the database itself: \($0.shellWord)" }
                ?? "name the database that it belongs to"
        case .foreign(.encrypted, _):
            "only the program that has its key can read it; relocate it with --opaque"
        case .foreign: "name the store's database file"
        case .sideFileIsDatabase(let path):
            "move it to a name of its own: mv \(path.shellWord) \(path.shellWord).sqlite"
        case .foreignLog(let path, _):
            "close the programs that use the store, then move the log away: mv \(path.shellWord) "
                + "\(path.shellWord).other"
        case .corrupt(_, _, let path): "restore a backup, or \(Self.recovery(of: path))"
        case .busy: "close the programs that use it, or try again"
        case .superJournalElsewhere(_, let path):
            "open it once where that path is valid: in its container, or at its former location; if it has always been "
                + "here: sqlite3 \(path.shellWord) 'SELECT count(*) FROM sqlite_schema'"
        case .sqlite(let code, _, _):
            switch code & 0xFF {
            case SQLITE_PERM, SQLITE_AUTH, SQLITE_READONLY: "run this as the owner of these files"
            case SQLITE_CANTOPEN: "check the permissions of the file and its directory; SQLite takes 512 bytes of path"
            case SQLITE_FULL: "free space in \(path.removingLastComponent().shellWord) (df -h), or inodes (df -i)"
            case SQLITE_IOERR: "see what the kernel logged: dmesg or journalctl -k"
            default: "see why: groupstore doctor"
            }
        }
    }
}

extension FilePath {
    /// The database to which this log, journal or wal-index belongs by its name; nil if it has no such name.
    package var databaseOfSideFile: FilePath? {
        for suffix in ["-wal", "-journal", "-shm"] where bytes.suffix(suffix.utf8.count).elementsEqual(suffix.utf8) {
            return FilePath(bytes: bytes.dropLast(suffix.utf8.count))
        }
        return nil
    }
}

extension StoreError {
    /// True if SQLite was denied access.
    package var isPermission: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return [SQLITE_PERM, SQLITE_AUTH, SQLITE_READONLY].contains(code & 0xFF)
    }
}
