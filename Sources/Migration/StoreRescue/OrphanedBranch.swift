import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreHazards
import SystemPackage

/// A history of a store in files of which at least one has lost its name: what one program, or several that share
/// these files, have committed and nobody else sees.
package struct OrphanedBranch: Sendable {
    package let code: StoreHazard.Code
    /// The processes that have the files open. The files are read through the first one.
    package private(set) var holders: [FileHolder]
    let database: BranchFile
    /// Nil in rollback mode.
    let log: BranchFile?
    let indexFile: BranchFile?
    /// All indexes of the log. A program that opened the store after the first index was removed has made another one:
    /// each overwrites commits that only the other has.
    package private(set) var indexes: [BranchIndex] = []
    /// The name that the database has now, if it is another than the store's.
    let otherName: FilePath?
    var index: FileIdentity? { indexFile?.identity }
    /// True if the store's name leads to the same database, with another log.
    let sharesDatabase: Bool
    /// The time at which a file last came or went in the store's directory; nil if it can't be read.
    let entriesChanged: Int64?
    private let named: NamedFiles

    package var holder: FileHolder { holders[0] }
    /// The log, index and journal.
    var files: Set<FileIdentity> { Set([log?.identity, index, journal?.identity].compactMap { $0 }) }

    /// Returns the branches of a store, by the hazards of two looks.
    ///
    /// - Parameters:
    ///   - store: The store's place; it needs no file at its name.
    ///   - entriesChanged: `entriesChanged` of an earlier look, before this process made files there; nil for none.
    package static func find(_ store: StoreLocation, entriesChanged: Int64? = nil) -> [OrphanedBranch] {
        var found: [OrphanedBranch] = []
        let entriesChanged = entriesChanged ?? (try? store.directory.status().modified)
        for hazard in HazardScan([(store.name, store.directory)], readsLogs: true).hazards() {
            let named = NamedFiles(store.name, in: store.directory)
            guard let branch = OrphanedBranch(hazard, named, entriesChanged) else { continue }
            let same = found.firstIndex {
                $0.database.identity == branch.database.identity && $0.log?.identity == branch.log?.identity
            }
            if let same { found[same].holders += branch.holders } else { found.append(branch) }
        }
        for position in found.indices { found[position].indexes = found[position].indexesOfLog() }
        return found
    }

    /// Returns nil for a hazard of another kind.
    private init?(_ hazard: StoreHazard, _ named: NamedFiles, _ entriesChanged: Int64?) {
        guard let lost = hazard.lost else { return nil }
        self.entriesChanged = entriesChanged
        let pid = hazard.holder.pid
        code = hazard.code
        holders = [hazard.holder]
        database = BranchFile(lost.database, of: pid)
        log = lost.log.map { BranchFile($0, of: pid) }
        indexFile = lost.index.map { BranchFile($0, of: pid) }
        sharesDatabase = lost.database.identity == named.database
        let isElsewhere =
            !sharesDatabase && lost.database.path != named.path
            && FileStatus(following: lost.database.path)?.identity == lost.database.identity
        otherName = isElsewhere ? lost.database.path : nil
        self.named = named
    }

    /// True if the database has changed places with the one at the store's name: a program has that one open, with the
    /// log that is at the name which the branch's database has now.
    var isSwapped: Bool {
        guard let otherName, let present = named.database,
            let log = FileStatus(following: otherName.appending(suffix: "-wal"))?.identity, log != self.log?.identity
        else { return false }
        return FileHolder.of(present).contains { holder in
            Set(HeldFile.of(holder.pid, only: [present, log]).map(\.identity)).count == 2
        }
    }

    /// Returns the indexes by which programs have the log open, and the one at the store's name if the log is there.
    private func indexesOfLog() -> [BranchIndex] {
        guard let log else { return [] }
        var found: [BranchIndex] = []
        for holder in FileHolder.of(log.identity) {
            let files = HeldFile.of(holder.pid)
            guard let held = files.first(where: { $0.canWrite && $0.identity == database.identity }),
                let store = HeldStore(code, held, among: files, named, side: { $0.side(of: holder.pid) }),
                store.log?.identity == log.identity, let index = store.index
            else { continue }
            if let same = found.firstIndex(where: { $0.file.identity == index.identity }) {
                found[same].holders.append(holder)
            } else {
                found.append(BranchIndex(file: BranchFile(index, of: holder.pid), holders: [holder]))
            }
        }
        // A program that was killed leaves its index.
        let isKnown = found.contains { $0.file.identity == named.index }
        if let identity = named.index, named.log == log.identity, !isKnown {
            let path = named.path.appending(suffix: "-shm")
            found.append(BranchIndex(file: BranchFile(path: path, identity: identity), holders: []))
        }
        return found
    }

    /// The last commit that the programs see in their log, by their own index; nil if it isn't known.
    var lastCommit: WriteAheadIndex? { indexFile?.lastCommit }

    /// A process that has a second lost log of the store open, through another connection; nil without one. Only one of
    /// them is found.
    var holderOfSeveral: FileHolder? { holders.first { Set(logs(of: $0).map(\.identity)).count > 1 } }

    /// The logs that the processes have open and that don't have the store's name any more.
    var lostLogs: [BranchFile] { holders.flatMap(logs) }

    private func logs(of holder: FileHolder) -> [BranchFile] {
        let path = named.path.appending(suffix: "-wal")
        return HeldFile.of(holder.pid).filter { file in
            file.canWrite && file.path == path && file.identity != named.log && file.side(of: holder.pid) == .log
        }.map { BranchFile($0, of: holder.pid) }
    }

    /// True if a program may have written the files since a time: some milliseconds before it count too.
    func hasWritten(since time: Int64) -> Bool {
        [database, log, journal].compactMap(\.self).contains { file in
            guard let status = FileStatus(following: file.path) else { return true }
            return status.modified > time - FileTime.resolution.nanoseconds
        }
    }

    /// The rollback journal that one of the programs has open now. In most journal modes each transaction has its own.
    var journal: BranchFile? {
        for holder in holders {
            let files = HeldFile.of(holder.pid)
            for file in files where file.canWrite && file.identity == database.identity {
                if let journal = HeldStore.journal(of: file, among: files, named) {
                    return BranchFile(journal, of: holder.pid)
                }
            }
        }
        return nil
    }

    /// True if the first process has ended or closed one of the files.
    var isLost: Bool { database.isLost || log?.isLost ?? false }

    /// The bytes of the database and its log; 0 once the process has ended.
    var size: Int64 {
        [database, log].compactMap { $0.flatMap { FileStatus(following: $0.path)?.size } }.reduce(0, +)
    }

    /// What identifies the branch in the record of a copy.
    var record: ArchiveNote.Branch {
        ArchiveNote.Branch(database: database.recorded, log: log?.recorded, holders: holders.list)
    }
}
