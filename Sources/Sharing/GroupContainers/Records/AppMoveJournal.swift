import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// One directory in transfer as a whole, with the facts that are needed to finish or undo its move after a crash.
package struct AppMove: Codable, Sendable, Equatable {
    package var id: TransferIdentifier
    /// The directory's old and new path. The parents contain no symbolic link.
    package var source: StoredPath
    package var destination: StoredPath
    /// The directory that moves.
    package var root: FileIdentity
    /// True if a symbolic link to the new place stays at the old one. False for the way back.
    package var leavesLink: Bool
    /// True if such a link is at the destination, which the directory replaces.
    package var replacesLink: Bool
    /// The move that this one takes back.
    package var undoes: TransferIdentifier?
    /// The paths to change in the stores; nil if none.
    package var rewrites: [PathRewrite]?
    /// The patterns of files that a copy leaves out, and that are removed from the old place; nil if none.
    package var leave: [String]?
    /// True if an agent's configuration has the move: that it was taken back is remembered. Nil otherwise.
    package var isConfigured: Bool?
    /// The boot in which the identities were read. Another boot may renumber devices.
    package var boot: String

    package init(
        id: TransferIdentifier, source: FilePath, destination: FilePath, root: FileIdentity, leavesLink: Bool,
        replacesLink: Bool, undoes: TransferIdentifier?
    ) {
        self.id = id
        self.source = StoredPath(source)
        self.destination = StoredPath(destination)
        self.root = root
        self.leavesLink = leavesLink
        self.replacesLink = replacesLink
        self.undoes = undoes
        boot = ProcessIdentity.current.boot
    }

    /// True if the status is of the file that had this identity. A file keeps its inode across a boot, but not always
    /// its device number.
    package func isFile(_ identity: FileIdentity, _ status: FileStatus?) -> Bool {
        guard let status, status.kind == .directory, status.identity.inode == identity.inode else { return false }
        return status.identity.device == identity.device || boot != ProcessIdentity.current.boot
    }
}

/// A change of a path, and of every path below it, in the values of a store.
///
/// A value holds the old path if it is that path, or begins with it and a slash; if it is a `file:` URL of such a path;
/// or if it is a JSON object or array with such a string. Only whole components match: `/a/b` is not in `/a/bc`. All
/// other bytes of the value stay as they are.
package struct PathRewrite: Codable, Sendable, Equatable {
    package let old: StoredPath
    package let new: StoredPath

    /// Returns nil unless both paths are absolute and the old one isn't the root.
    package init?(old: FilePath, new: FilePath) {
        guard old.isAbsolute, new.isAbsolute, old.lastComponent != nil else { return nil }
        (self.old, self.new) = (StoredPath(old), StoredPath(new))
    }
}

/// The progress of a directory's move. It bounds what may have been done; the disk shows what was done.
package enum AppMoveState: Codable, Sendable, Equatable {
    /// The directory has its name. A link of ours may stand at the destination; the exchange of the two is the commit
    /// point.
    case renaming
    /// The directory has its name. A partial copy may exist.
    case copying
    /// The directory may have its hidden name, and a link its own. Recovery undoes everything up to `committing`.
    case withdrawn
    /// The copy, which has this identity, is being given its name. Its arrival there is the commit point.
    case committing(FileIdentity)
}

/// The file `.groupstore/app-journal.json`. Only the holder of the group's lock reads or writes it.
package struct AppMoveJournal: OwnedRecord, Codable, Sendable, Equatable {
    package var version = 1
    package var move: AppMove
    package var state: AppMoveState
    /// The cells that `--undo` leaves as they are; nil if none. Known once the copy is complete.
    package var left: [LeftCells]?
    package var writer = geteuid()

    private enum CodingKeys: CodingKey {
        case version, move, state, left
    }

    package init(_ move: AppMove, _ state: AppMoveState) {
        self.move = move
        self.state = state
    }
}

/// The cells of one column that a move has changed and its undoing doesn't give back.
package struct LeftCells: Codable, Sendable, Equatable {
    package enum Reason: String, Codable, Sendable {
        /// The store is gone, or SQLite can't open it.
        case store
        /// The table is gone, or has another name.
        case table
        /// The column is gone, or has another name.
        case column
        /// The table has no key, and other cells of the column have the same value.
        case ambiguous
        /// The program has changed the cell, or removed its row.
        case changed
    }

    /// The store, relative to the moved directory.
    package let store: StoredPath
    package let table: String
    package let column: String
    package let reason: Reason
    package var count = 1

    package init(store: StoredPath, table: String, column: String, reason: Reason) {
        (self.store, self.table, self.column, self.reason) = (store, table, column, reason)
    }

    /// True if the cell is as the program wants it. False if it may still hold a path that leads nowhere.
    package var isIntended: Bool { reason == .changed }
}

/// The durable record of a directory's completed move.
package struct AppMoveReceipt: Codable, Sendable, Equatable {
    package enum Method: String, Codable, Sendable {
        case rename, copy
    }

    package var version = 1
    package var move: AppMove
    package var at: Date
    package var method: Method
    /// The directory at the new place.
    package var published: FileIdentity
    /// True for a move that was taken back, of which only this is remembered; nil otherwise.
    package var isUndone: Bool?

    package init(_ move: AppMove, at: Date, method: Method, published: FileIdentity) {
        self.move = move
        self.at = at
        self.method = method
        self.published = published
    }
}

extension GroupContainer {
    private static let appJournalName: FilePath.Component = "app-journal.json"
    private static let appReceiptsName: FilePath.Component = "app-receipts"

    /// Returns the directory's move in progress, or nil if there is none.
    package func appJournal() throws -> AppMoveJournal? {
        try existingBookkeeping().flatMap { try Record.readOwned(AppMoveJournal.self, Self.appJournalName, in: $0) }
    }

    package func write(_ journal: AppMoveJournal) throws {
        try Record.write(journal, Self.appJournalName, in: bookkeeping())
    }

    package func removeAppJournal() throws {
        if let bookkeeping = try existingBookkeeping() { try Record.remove(Self.appJournalName, in: bookkeeping) }
    }

    /// Returns the receipts of moves to this place, oldest first. Omits unreadable ones.
    package func appReceipts(of destination: FilePath) throws(SystemError) -> [AppMoveReceipt] {
        try appReceipts().filter { $0.isUndone != true && $0.move.destination.path == destination }
    }

    /// Returns the receipts of moves from this place, oldest first. Omits unreadable ones.
    package func appReceipts(from source: FilePath) throws(SystemError) -> [AppMoveReceipt] {
        try appReceipts().filter { $0.isUndone != true && $0.move.source.path == source }
    }

    /// Returns the receipts of the directories that moves have brought here, and that are here, oldest first.
    package func movedApps() throws(SystemError) -> [AppMoveReceipt] {
        try appReceipts().filter {
            $0.isUndone != true && $0.move.isFile($0.published, FileStatus(following: $0.move.destination.path))
        }
    }

    private func appReceipts() throws(SystemError) -> [AppMoveReceipt] {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.appReceiptsName) != nil else {
            return []
        }
        let directory = try bookkeeping.directory(Self.appReceiptsName)
        return try directory.names().filter { $0.extension == "json" }
            .compactMap { try? Record.read(AppMoveReceipt.self, $0, in: directory) }
            .sorted { ($0.at, $0.move.id.rawValue) < ($1.at, $1.move.id.rawValue) }
    }

    package func write(_ receipt: AppMoveReceipt) throws {
        guard let name = FilePath.Component("\(receipt.move.id).json") else { return }
        try Record.write(receipt, name, in: Self.child(Self.appReceiptsName, of: bookkeeping()))
    }

    /// Returns true if a move from the place that an agent's configuration has, or had with another destination, was
    /// taken back.
    package func isAppMoveUndone(from source: FilePath) throws(SystemError) -> Bool {
        try !undoneAppMoves(from: source).isEmpty
    }

    private func undoneAppMoves(from source: FilePath) throws(SystemError) -> [AppMoveReceipt] {
        try appReceipts().filter { $0.isUndone == true && $0.move.source.path == source }
    }

    /// Writes the receipt of a move, and forgets that an earlier one from its place was taken back.
    package func begin(_ receipt: AppMoveReceipt) throws {
        try write(receipt)
        for old in try undoneAppMoves(from: receipt.move.source.path) { try removeAppReceipt(old.move.id) }
    }

    /// Ends the receipt of a move that was taken back: removes it, or marks it if an agent's configuration has the
    /// move, so that the agent leaves the directory where it is.
    package func endAppReceipt(_ id: TransferIdentifier) throws {
        guard var receipt = try appReceipts().first(where: { $0.move.id == id && $0.move.isConfigured == true }) else {
            return try removeAppReceipt(id)
        }
        receipt.isUndone = true
        try write(receipt)
        if let cells = Self.cellsName(id) {
            let directory = try Self.child(Self.appReceiptsName, of: bookkeeping())
            try directory.removeFile(cells)
            try directory.synchronize()
        }
    }

    /// Records that a move which an agent's configuration has was taken back before it was decided.
    package func recordUndone(_ move: AppMove) throws {
        var receipt = AppMoveReceipt(move, at: Date(), method: .rename, published: move.root)
        receipt.isUndone = true
        try write(receipt)
    }

    /// Removes a receipt with the cells that the move has changed.
    package func removeAppReceipt(_ id: TransferIdentifier) throws(SystemError) {
        guard let name = FilePath.Component("\(id).json") else { return }
        let directory = try Self.child(Self.appReceiptsName, of: bookkeeping())
        try directory.removeFile(name)
        for unfinished in [name.appending(".new"), Self.cellsName(id)?.appending(".new")] {
            if let unfinished { try directory.removeFile(unfinished) }
        }
        if let cells = Self.cellsName(id) { try directory.removeFile(cells) }
        try directory.synchronize()
    }

    /// Removes `.groupstore` if nothing is in it but the lock, which this process holds, and an empty directory of
    /// receipts. The kernel removes directories only if they are empty, so that a record of anybody else's keeps it.
    package func removeUnusedRecords() {
        guard let bookkeeping = try? existingBookkeeping() else { return }
        try? bookkeeping.removeDirectory(Self.appReceiptsName)
        guard let names = try? bookkeeping.names(), names == [Self.lockName] else { return }
        try? bookkeeping.removeFile(Self.lockName)
        try? directory.removeDirectory(Self.bookkeepingName)
        try? directory.synchronize()
    }

    private static func cellsName(_ id: TransferIdentifier) -> FilePath.Component? {
        FilePath.Component("\(id).cells")
    }

    /// Writes the cells that a move has changed, a JSON object a line. `--undo` needs them.
    package func writeAppCells(_ lines: [UInt8], _ id: TransferIdentifier) throws {
        guard let name = Self.cellsName(id) else { return }
        let directory = try Self.child(Self.appReceiptsName, of: bookkeeping())
        // They are content of stores, which other users of the group may not be allowed to read.
        try DurableFile.write(lines, as: name, in: directory, mode: 0o600)
    }

    /// Returns the cells that a move has changed, or nil if it has changed none.
    package func appCells(_ id: TransferIdentifier) throws(SystemError) -> [UInt8]? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.appReceiptsName) != nil,
            let name = Self.cellsName(id)
        else { return nil }
        let directory = try bookkeeping.directory(Self.appReceiptsName)
        guard try directory.status(name) != nil else { return nil }
        let file = try directory.openOwn(name, flags: O_RDONLY)
        let path = directory.path.appending(name)
        return try file.read(count: Int(file.status(path: path).size), at: 0, path: path)
    }
}
