import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Decides from the open files of processes which of them are a hazard to a store. It compares devices and inodes; of
/// names, only those under which one process has its files open with each other.
///
/// Each state also occurs for a moment while SQLite opens or closes a store: it unlinks the index before it closes it,
/// and opens the log before the index. So a hazard is one that two looks in a row see.
package struct HazardDecision {
    /// A hazard as one look sees it.
    package struct Sighting: Hashable, Sendable {
        package let code: StoreHazard.Code
        package let pid: Int32
        package let descriptor: Int32
        package let identity: FileIdentity
    }

    private let named: NamedFiles
    /// The store's name, and the names of its log, index and journal.
    private let name: [UInt8]
    private let sideNames: [[UInt8]]
    private let holders: [StoreHolderFiles]
    /// Returns the version of SQLite in a process; nil if it is unknown, or doesn't matter.
    private let version: (Int32) -> SQLiteVersion?

    package init(
        _ named: NamedFiles, _ holders: [StoreHolderFiles], version: @escaping (Int32) -> SQLiteVersion? = { _ in nil }
    ) {
        (self.named, self.holders, self.version) = (named, holders, version)
        let name = named.path.lastComponent.map { $0.bytes } ?? []
        (self.name, sideNames) = (name, ["-wal", "-shm", "-journal"].map { name + Array($0.utf8) })
    }

    /// Returns the hazards, at most one of each kind a process, in the order of the processes.
    package var sightings: [Sighting] { holders.flatMap(sightings) + [oldWriter].compactMap(\.self) }

    /// The first of two or more writers in WAL mode whose SQLite is too old. A child that has inherited descriptors has
    /// no lock of its own.
    private var oldWriter: Sighting? {
        let writers = holders.filter { $0.hasOwnLock && $0.writable(named.index) != nil }
        guard writers.count > 1 else { return nil }
        for writer in writers {
            guard let database = writer.writable(named.database), let version = version(writer.pid),
                version < .withoutResetBug
            else { continue }
            return Sighting(
                code: .oldSQLite, pid: writer.pid, descriptor: database.descriptor, identity: database.identity)
        }
        return nil
    }

    private func sightings(_ holder: StoreHolderFiles) -> [Sighting] {
        func sighting(_ code: StoreHazard.Code, _ file: HeldFile) -> [Sighting] {
            [Sighting(code: code, pid: holder.pid, descriptor: file.descriptor, identity: file.identity)]
        }
        // A process that has opened the store again may still have its former file.
        if let former = formerDatabase(holder) { return sighting(.orphanedDatabase, former) }
        guard let database = holder.writable(named.database) else {
            return databaseOfSideFile(holder).map { sighting(.orphanedDatabase, $0) } ?? []
        }
        if hasOtherName(database, holder) { return sighting(.twoNames, database) }
        if let file = otherLog(of: database, holder) {
            return sighting(holder.isPresent(file) ? .twoNames : .orphanedLog, file)
        }
        if let file = renamedSide(of: database, holder) { return sighting(.orphanedLog, file) }
        let index = holder.writable(named.index)
        if index != nil, !holder.hasLock { return sighting(.droppedLocks, database) }
        if index == nil, let log = holder.writable(named.log),
            holders.contains(where: { $0.pid != holder.pid && $0.writable(named.index) != nil })
        {
            return sighting(.mixedModes, log)
        }
        return []
    }

    /// Returns a file that the process has open by the store's name, and that isn't the store.
    private func formerDatabase(_ holder: StoreHolderFiles) -> HeldFile? {
        holder.files.first { $0.canWrite && $0.identity != named.database && hasOwnName($0, holder) }
    }

    /// Returns the database of a process that has a log, index or journal of the store open, and not the store. A
    /// database that was renamed has another name by now, and its side files have those that SQLite gave them.
    ///
    /// A connection with a log has its database locked. Another program may have a log open and no database.
    private func databaseOfSideFile(_ holder: StoreHolderFiles) -> HeldFile? {
        let side =
            [named.log, named.index, named.journal].lazy.compactMap { holder.writable($0) }
            .first { !isElsewhere($0, holder) }
            ?? holder.files.first { $0.canWrite && hasSideName($0, holder) }
        guard let side else { return nil }
        guard let locked = holder.locked, !isJournal(side) else { return nearest(to: side, holder) ?? side }
        return nearest(to: side, holder) { locked.contains($0.identity) }
    }

    private func isJournal(_ file: HeldFile) -> Bool {
        file.identity == named.journal || file.path.string.hasSuffix("-journal")
    }

    /// True if the process has the file open in another directory than the store's. A side file lives for as little as
    /// one transaction, and a file of another store may have got its inode number between the look at the names and the
    /// look at the process.
    private func isElsewhere(_ file: HeldFile, _ holder: StoreHolderFiles) -> Bool {
        guard !named.setAside.contains(file.identity), let directory = holder.directories[file.directory] else {
            return false
        }
        return directory != named.directory
    }

    /// True if the process has the file open by the name of a log, index or journal of the store.
    private func hasSideName(_ file: HeldFile, _ holder: StoreHolderFiles) -> Bool {
        sideNames.contains { file.isNamed($0) }
            && (holder.directories[file.directory] == named.directory || named.setAside.contains(file.identity))
    }

    /// True if the process has the database open by a name that isn't the store's, and that exists.
    private func hasOtherName(_ database: HeldFile, _ holder: StoreHolderFiles) -> Bool {
        holder.isPresent(database) && holder.directories[database.directory] != nil && !hasOwnName(database, holder)
    }

    /// Returns a log or index that the process has open beside the database, and that isn't the store's.
    private func otherLog(of database: HeldFile, _ holder: StoreHolderFiles) -> HeldFile? {
        for (suffix, expected) in [("-wal", named.log), ("-shm", named.index)] {
            let path = database.path.appending(suffix: suffix)
            if let file = holder.writable(path).first(where: { $0.identity != expected }) { return file }
        }
        return nil
    }

    /// Returns a log or index of the process that has another name than SQLite gave it.
    private func renamedSide(of database: HeldFile, _ holder: StoreHolderFiles) -> HeldFile? {
        for (side, expected) in [(HeldStore.Side.log, named.log), (.index, named.index)] {
            let path = database.path.appending(suffix: side.rawValue)
            guard holder.writable(path).isEmpty, holder.writable(expected) == nil else { continue }
            let renamed = holder.files.first {
                $0.canWrite && holder.sides[$0.identity] == side && !isSideFile($0, holder)
            }
            if let renamed { return renamed }
            // SQLite opens the log before the index: a process with the index alone has a log somewhere.
            if side == .log, let index = holder.writable(named.index) { return nearest(to: index, holder) ?? index }
        }
        return nil
    }

    /// Returns the file that the process opened just before another, by the numbers of the descriptors.
    private func nearest(
        to file: HeldFile, _ holder: StoreHolderFiles, where isIncluded: (HeldFile) -> Bool = { _ in true }
    ) -> HeldFile? {
        holder.files.filter { other in
            isIncluded(other) && other.canWrite && other.descriptor < file.descriptor
                && other.identity.device == file.identity.device && !named.all.contains(other.identity)
        }.max { $0.descriptor < $1.descriptor }
    }

    /// True if the file is the log or index of another database that the process has open.
    private func isSideFile(_ file: HeldFile, _ holder: StoreHolderFiles) -> Bool {
        holder.files.contains { database in
            ["-wal", "-shm"].contains { file.isSideFile($0, of: database) }
        }
    }

    /// True if the process has the file open by the store's name in the store's directory.
    private func hasOwnName(_ file: HeldFile, _ holder: StoreHolderFiles) -> Bool {
        file.isNamed(name) && holder.directories[file.directory] == named.directory
    }
}

extension HeldFile {
    var directory: FilePath { path.removingLastComponent() }

    /// The last component of the path.
    var name: [UInt8] {
        path.withPlatformString { path in
            let slash: UnsafeMutablePointer<CChar>? = strrchr(path, CInt(UInt8(ascii: "/")))
            let last = slash.map { UnsafePointer($0) + 1 } ?? path
            return Array(UnsafeRawBufferPointer(start: last, count: strlen(last)))
        }
    }

    /// True if the last component of the path is `name` or, with `isStart`, begins so. `FilePath`'s own components cost
    /// a hundred times as much, and a look compares each file of a process with the names of each store.
    func isNamed(_ name: [UInt8], isStart: Bool = false) -> Bool {
        path.withPlatformString { path in
            let slash: UnsafeMutablePointer<CChar>? = strrchr(path, CInt(UInt8(ascii: "/")))
            let last = slash.map { UnsafePointer($0) + 1 } ?? path
            let count = strlen(last)
            return (isStart ? count >= name.count : count == name.count) && memcmp(last, name, name.count) == 0
        }
    }

    /// True if the file has the name that SQLite gives a side file of the database.
    func isSideFile(_ suffix: String, of database: HeldFile) -> Bool {
        path.withPlatformString { path in
            database.path.withPlatformString { database in
                let count = strlen(database)
                return strncmp(path, database, count) == 0 && strcmp(path + count, suffix) == 0
            }
        }
    }
}
