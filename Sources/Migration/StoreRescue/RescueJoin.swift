import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import StoreMerging
import StoreRelocation
import SystemPackage

/// The part of a rescue that changes the store: the branches go to the archive, and then the store at the name is
/// replaced by one that has their rows too.
struct RescueJoin {
    let store: StoreLocation
    let options: MergeOptions
    let baseMargin: Duration?
    let isCancelled: @Sendable () -> Bool
    let report: (RelocationEvent) -> Void

    /// Joins the branches, and the archived ones of programs that have ended.
    ///
    /// - Parameter place: A directory for copies.
    func run(
        _ branches: [OrphanedBranch], _ ended: [SavedBranches.Saved], _ join: BranchJoin, in place: Directory,
        _ result: inout RescueReport
    ) throws {
        let named = NamedFiles(store.name, in: store.directory)
        let holders = Set(branches.flatMap { $0.holders.map(\.pid) })
        let files = store.foreign(branches, ended)
        let sides = [
            (store.name.wal, named.log), (store.name.sharedMemory, named.index), (store.name.journal, named.journal),
        ]
        let strays = sides.filter { _, file in file.map(files.contains) ?? false }.map(\.0)
        let isShared = try store.needsDetaching(branches, ended)
        let isEmpty = store.hasEmptyFile(without: files, branches)
        let database = isEmpty ? nil : named.database
        // A journal has no index that programs lock.
        let needsFence = database != nil && (isShared || strays.contains { $0 != store.name.journal })
        let index = strays.contains(store.name.sharedMemory) ? named.index : nil
        let fence = needsFence ? try StoreFence(store, holders: holders, branchIndex: index) : nil

        var copies = try BranchCopies(
            branches, ended, of: store, without: files, in: place, archived: join.saved.archived(),
            baseMargin: baseMargin, recording: true)
        result.branches = copies.reported
        let joinedBefore = copies.branches.filter(\.isJoined).compactMap { $0.earlier?.location }
        copies.branches.removeAll(where: \.isJoined)
        guard !copies.branches.isEmpty || !ended.isEmpty else { return }
        try store.checkHardLinks()
        result.merge = try rehearse(copies)
        result.notes += [copies.doubt].compactMap(\.self)

        // From here on something is changed: first the archive, then the name.
        var parts: [(location: StoreLocation, holders: String, inWAL: Bool)] = []
        for copy in copies.branches {
            let location = try copy.earlier?.location ?? archive(copy, join)
            parts.append((location, copy.branch.holders.list, copy.copy.hadWAL))
            for index in result.branches.indices where result.branches[index].holders.first == copy.branch.holder {
                result.branches[index].archive = location.directory.path
            }
        }
        parts += ended.map { ($0.location, $0.branch.holders, $0.branch.hadWAL) }
        if !strays.isEmpty {
            try fence?.check()
            let owners = (branches.map(\.holders.list) + ended.map(\.branch.holders)).joined(separator: ", ")
            try join.setAside(strays, reason: "the log, index or journal of \(owners), beside another store")
        }
        var merged = parts[...]
        if isEmpty, let file = named.database { try setAsideEmpty(file, files, branches, join) }
        if let database {
            if let fence, let name = copies.name, isShared {
                try join.detach(name.location, from: database, behind: fence)
            }
        } else {
            let first = merged.removeFirst()
            try publish(first.location, inWAL: first.inWAL, in: place, join)
        }
        _ = consume fence
        if let first = merged.first {
            let merge = BranchMerge(
                options: options, branches: merged.map(\.location), base: copies.base,
                holders: merged.map(\.holders), isCancelled: isCancelled)
            let outcome = try join.merge(merge, with: first.location)
            result.archive = outcome.archive
            result.merge = outcome.report ?? result.merge
            result.notes += (outcome.report?.notes ?? []) + outcome.notes
        }
        for location in parts.map(\.location) + joinedBefore { try join.noteJoined(location) }
        result.outcome = .rescued
    }

    private func archive(_ copy: BranchCopies.Branch, _ join: BranchJoin) throws -> StoreLocation {
        try join.archive(
            copy.copy.location,
            reason: "what \(copy.branch.holders.list) had committed to \(copy.branch.lostFiles), before it was joined",
            branch: copy.copy.record ?? copy.branch.record)
    }

    /// Moves an empty file from the store's name into the archive. A program that is about to write to it keeps it.
    private func setAsideEmpty(
        _ file: FileIdentity, _ foreign: Set<FileIdentity>, _ branches: [OrphanedBranch], _ join: BranchJoin
    ) throws {
        let isOpen = FileHolder.of(file).contains { HeldFile.of($0.pid, only: [file]).contains(where: \.canWrite) }
        guard !isOpen, store.hasEmptyFile(without: foreign, branches) else {
            throw RelocationFailure(
                .busy, code: "in_use", "\(PrintablePath(store.path)): a program has the empty file at the name open",
                remedy: "see which, close it, and try again: groupstore doctor \(store.path.shellWord)")
        }
        try join.setAside([store.name.database], reason: "the empty file that was at the store's name")
    }

    /// Gives a copy of an archived branch the store's name, at which there is nothing.
    private func publish(
        _ archived: StoreLocation, inWAL: Bool, in place: Directory, _ join: BranchJoin
    ) throws {
        guard let name = StoreName.existing("published") else { return }
        let copy = StoreLocation(directory: place, name: name)
        _ = try place.open(name.database, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try StoreReader.read(archived) { try $0.copy(to: copy.pathForSQLite) }
        try join.publish(copy, like: archived, inWAL: inWAL)
    }

    /// Merges private copies. Throws `RelocationFailure` if the branches are in conflict.
    func rehearse(_ copies: BranchCopies) throws -> MergeReport? {
        let branches =
            copies.branches.map { ($0.copy.location, $0.branch.holders.list) }
            + copies.ended.map { ($0.saved.location, $0.saved.branch.holders) }
        guard let first = copies.name?.location ?? branches.first?.0, !branches.isEmpty else { return nil }
        do {
            let others = branches.dropFirst(copies.name == nil ? 1 : 0)
            guard let legacy = others.first?.0 else { return nil }
            let merge = BranchMerge(
                options: options, branches: others.map(\.0), base: copies.base, holders: others.map(\.1),
                isCancelled: isCancelled)
            return try merge.rehearse(first, merging: legacy, report: report)
        } catch let failure as RelocationFailure {
            throw failure.asRefusal
        }
    }
}

extension StoreLocation {
    /// The files at the store's names, with their creation times.
    fileprivate func file(_ part: FilePath.Component) -> ArchiveNote.Branch.File? {
        guard let identity = try? directory.status(part)?.identity else { return nil }
        return ArchiveNote.Branch.File(identity: identity, birth: directory.birth(part))
    }

    /// True if the files of a branch that no program has open any more are the store at its name: only their index was
    /// lost.
    func hasFiles(of saved: SavedBranches.Saved) -> Bool {
        saved.branch.log != nil && saved.branch.log == file(name.wal) && saved.branch.database == file(name.database)
    }

    /// True if a branch has, or had, the database file that is at the store's name. Its programs may have checkpointed
    /// their lost log into it.
    func isShared(by branches: [OrphanedBranch], _ ended: [SavedBranches.Saved]) -> Bool {
        branches.contains(where: \.sharesDatabase) || ended.contains { $0.branch.database == file(name.database) }
    }

    /// True if the log at the store's name must be made to match the database before the store is merged: a program
    /// has the database open by a lost log, or had it, and its checkpoint makes the log look like another database's.
    func needsDetaching(_ branches: [OrphanedBranch], _ ended: [SavedBranches.Saved]) throws -> Bool {
        try branches.contains(where: \.sharesDatabase) || isShared(by: branches, ended) && foreignLog() != nil
    }

    /// Returns the logs, indexes and journals at the store's names that belong to a branch. A program that has ended
    /// may have left the log of a former database.
    func foreign(_ branches: [OrphanedBranch], _ ended: [SavedBranches.Saved]) -> Set<FileIdentity> {
        let logs = ended.compactMap(\.branch.log).filter { $0 == file(name.wal) }.map(\.identity)
        return branches.reduce(into: Set(logs)) { $0.formUnion($1.files) }
    }
}

extension BranchCopies {
    var reported: [RescueReport.Branch] { branches.map(\.reported) + ended.map(\.reported) }
}

extension OrphanedBranch {
    /// A phrase for the files that nobody else sees.
    fileprivate var lostFiles: String {
        code == .orphanedLog ? "a lost log of the store" : "a former file of the store"
    }
}
