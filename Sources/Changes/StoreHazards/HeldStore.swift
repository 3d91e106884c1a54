import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A database that a process has open after it, its log or its index has lost its name, with the side files that belong
/// to it: the process's own history of the store.
package struct HeldStore: Equatable, Sendable {
    package let database: HeldFile
    /// The write-ahead log; nil in rollback mode, and if it can't be found.
    package let log: HeldFile?
    package let index: HeldFile?
    /// The rollback journal. In most journal modes it is open during a transaction only.
    package let journal: HeldFile?

    /// A file that its first bytes tell.
    package enum Side: String, Sendable {
        case log = "-wal"
        case index = "-shm"
    }

    /// Returns nil for a hazard of another kind, and if the process has no database open for it.
    ///
    /// - Parameters:
    ///   - held: The file of the hazard.
    ///   - files: The process's files.
    ///   - side: Returns which file of a store one is, by its first bytes.
    package init?(
        _ code: StoreHazard.Code, _ held: HeldFile, among files: [HeldFile], _ named: NamedFiles,
        side: (HeldFile) -> Side?
    ) {
        let files = files.filter(\.canWrite)
        let found: HeldFile?
        switch code {
        case .orphanedLog: found = files.first { $0.identity == named.database }
        case .orphanedDatabase: found = held
        case .droppedLocks, .twoNames, .mixedModes, .hiddenWriters, .oldSQLite: return nil
        }
        guard let database = found else { return nil }
        // Renamed files have any name.
        let index =
            Self.side("-shm", of: database, among: files, named, expected: named.index)
            ?? Self.renamed(.index, of: database, among: files, named.index, side)
        var log = Self.side("-wal", of: database, among: files, named, expected: named.log)
        if log == nil { log = Self.renamed(.log, of: database, among: files, named.log, side) }
        if log == nil, code == .orphanedLog, held != index, !held.path.string.hasSuffix("-shm") { log = held }
        self.database = database
        self.log = log
        self.index = index
        journal = Self.journal(of: database, among: files, named)
    }

    /// Returns the rollback journal that a process has open for a database.
    package static func journal(of database: HeldFile, among files: [HeldFile], _ named: NamedFiles) -> HeldFile? {
        let files = files.filter(\.canWrite)
        if let found = side("-journal", of: database, among: files, named, expected: named.journal) { return found }
        // A renamed journal: `app.db-journal.bak`.
        let names = [database.path.lastComponent, named.path.lastComponent].compactMap { $0.map { $0.bytes } }
            .map { $0 + Array("-journal".utf8) }
        return files.first { file in names.contains { file.isNamed($0, isStart: true) } }
    }

    /// Returns a side file of a database. Prefers a lost file: a process may have opened the store a second time, by
    /// its new names.
    private static func side(
        _ suffix: String, of database: HeldFile, among files: [HeldFile], _ named: NamedFiles,
        expected: FileIdentity?
    ) -> HeldFile? {
        let path = database.path.appending(suffix: suffix)
        let own = named.path.appending(suffix: suffix)
        // SQLite opens the database first.
        let files = files.filter { $0.descriptor > database.descriptor } + files
        let atPath = files.filter { $0.isSideFile(suffix, of: database) }
        let setAside = files.filter { file in
            named.setAside.contains(file.identity)
                && [path.lastComponent, own.lastComponent].contains(file.path.lastComponent)
        }
        // A database that was renamed has side files of the store's name.
        let renamed = files.filter { file in
            database.identity != named.database && file.path.lastComponent == own.lastComponent
                && (file.directory == database.directory || file.directory == own.removingLastComponent())
        }
        let all = atPath + setAside + renamed
        return all.first { $0.identity != expected } ?? all.first
    }

    /// Returns the log or index of a database by its first bytes: the first one that the process has opened after the
    /// database and that belongs to no other.
    private static func renamed(
        _ wanted: Side, of database: HeldFile, among files: [HeldFile], _ expected: FileIdentity?,
        _ side: (HeldFile) -> Side?
    ) -> HeldFile? {
        let found = files.filter { file in
            file.identity.device == database.identity.device && file.identity != expected && side(file) == wanted
                && !files.contains { file.isSideFile(wanted.rawValue, of: $0) }
        }.sorted { $0.descriptor < $1.descriptor }
        return found.first { $0.descriptor > database.descriptor } ?? found.first
    }
}

extension HeldFile {
    /// Returns the path by which another process can open the file, as long as this one keeps it open.
    package func path(of pid: Int32) -> FilePath { FilePath("/proc/\(pid)/fd/\(descriptor)") }

    /// Returns which of a store's files this is, by its first bytes: the log or its index.
    package func side(of pid: Int32) -> HeldStore.Side? {
        let path = path(of: pid)
        guard let start = try? Descriptor(opening: path, flags: O_RDONLY).read(count: 4, at: 0, path: path) else {
            return nil
        }
        return WriteAheadLog.isStart(start) ? .log : WriteAheadIndex.isStart(start) ? .index : nil
    }
}
