import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import StoreRelocation
import SystemPackage

/// Private copies of the sides of a split store, and those that earlier rescues have saved.
struct BranchCopies {
    struct Branch {
        let branch: OrphanedBranch
        let copy: BranchCopy
        /// An archived copy with the same content.
        let earlier: SavedBranches.Saved?
        /// True if the store has the rows: an earlier run joined them, and its result still has the store's name.
        let isJoined: Bool
        let changes: ContentChanges?

        var reported: RescueReport.Branch {
            RescueReport.Branch(
                holders: branch.holders, code: branch.code.rawValue, subject: branch.holders.list,
                commits: copy.commits, lastWrite: copy.lastWrite, changes: changes, isJoined: isJoined,
                archive: earlier?.location.directory.path)
        }
    }

    /// A saved copy of a branch whose files no program has open any more.
    struct Ended {
        let saved: SavedBranches.Saved
        let changes: ContentChanges?

        var reported: RescueReport.Branch {
            RescueReport.Branch(
                holders: [], code: "archived", subject: saved.branch.holders, changes: changes, isJoined: false,
                archive: saved.location.directory.path)
        }
    }

    /// The store at the name, without the files that belong to a branch; nil if there is none.
    let name: BranchCopy?
    var branches: [Branch]
    let ended: [Ended]
    /// The last state that the store and all branches had; nil if it isn't asked for.
    let base: StoreLocation?
    /// A sentence on what one side may have hidden of another; nil if that is excluded.
    let doubt: String?

    /// Copies the store and its branches into an empty directory. Throws `RelocationFailure` if a branch is gone or
    /// damaged, or if the common base that is asked for is contradicted.
    ///
    /// - Parameters:
    ///   - ended: Saved copies of branches that no program has open.
    ///   - foreign: The files at the store's name that belong to a branch.
    ///   - archived: The archived branches of the directory.
    ///   - baseMargin: See `StoreRescue.init`.
    init(
        _ branches: [OrphanedBranch], _ ended: [SavedBranches.Saved], of store: StoreLocation,
        without foreign: Set<FileIdentity>, in place: Directory, archived: [SavedBranches.Saved],
        baseMargin: Duration?, recording: Bool
    ) throws {
        let start = SplitBase.Start(store)
        if !store.isShared(by: branches, ended) { try store.checkLog(without: foreign) }
        let name = try Self.name(of: store, without: foreign, branches, in: place)
        let file = NamedFiles(store.name, in: store.directory).database.map {
            ArchiveNote.Branch.File(identity: $0, birth: store.directory.birth(store.name.database))
        }
        func changes(_ copy: StoreLocation) throws -> ContentChanges? {
            try name.map { name in
                try StoreReader.read(copy) { reader in
                    let content = try StoreContent(reader)
                    return try StoreReader.read(name.location) { try StoreContent($0).changes(to: content) }
                }
            }
        }
        self.name = name
        self.branches = try branches.enumerated().map { number, branch in
            let copy = try Self.copy(branch, number, of: store, in: place, recording: recording)
            let earlier = try Self.earlier(branch.record, copy.location, of: store, in: archived)
            let isJoined = earlier.map { $0.branch.isJoined && $0.branch.store == file } ?? false
            return try Branch(
                branch: branch, copy: copy, earlier: earlier, isJoined: isJoined, changes: changes(copy.location))
        }
        self.ended = try ended.map { try Ended(saved: $0, changes: changes($0.location)) }
        let open = self.branches.filter { !$0.isJoined }.map(\.branch)
        guard let baseMargin, !open.isEmpty || !ended.isEmpty else {
            base = nil
            doubt = Self.doubt(open, ended, of: store, since: start, without: foreign)
            return
        }
        doubt = nil
        do {
            guard ended.isEmpty else { throw SplitBase.Obstacle("the program of a branch has ended") }
            base = try SplitBase(
                of: store, since: start, open, without: foreign, in: place, margin: baseMargin
            ).location
        } catch let obstacle as SplitBase.Obstacle {
            throw RelocationFailure.noCommonBase(store.path, obstacle.reason)
        }
    }

    /// Returns why a row of one side may be hidden: a side has, or may have, written the database that they share under
    /// another side's log.
    private static func doubt(
        _ open: [OrphanedBranch], _ ended: [SavedBranches.Saved], of store: StoreLocation, since start: SplitBase.Start,
        without foreign: Set<FileIdentity>
    ) -> String? {
        guard store.isShared(by: open, ended) else { return nil }
        let reason: String
        do {
            guard !store.isShared(by: [], ended) else { throw SplitBase.Obstacle("the program of a branch has ended") }
            try SplitBase.check(store, start, open.filter(\.sharesDatabase), foreign, BaseContradiction.margin)
            return nil
        } catch let obstacle as SplitBase.Obstacle {
            reason = obstacle.reason
        } catch {
            reason = "\(error)"
        }
        return "\(PrintablePath(store.path)): nothing proves that no side has written the database that they share "
            + "under another side's log (\(reason)): pages of one may hide a row of another; compare the result with "
            + "what the programs have committed last"
    }

    /// Copies the store at its name, with its log and journal unless they belong to a branch. Returns nil if there is
    /// none, or an empty file.
    static func name(
        of store: StoreLocation, without foreign: Set<FileIdentity>, _ branches: [OrphanedBranch],
        in place: Directory, record: BranchRecord? = nil
    ) throws -> BranchCopy? {
        let named = NamedFiles(store.name, in: store.directory)
        guard let database = named.database, !store.hasEmptyFile(without: foreign, branches) else { return nil }
        func side(_ name: FilePath.Component, _ identity: FileIdentity?) -> BranchFile? {
            guard let identity, !foreign.contains(identity) else { return nil }
            return BranchFile(path: store.directory.path.appending(name), identity: identity)
        }
        return try BranchCopy(
            BranchFile(path: store.path, identity: database), side(store.name.wal, named.log),
            journal: .named {
                let journal = side(store.name.journal, NamedFiles(store.name, in: store.directory).journal)
                // A program whose database was renamed begins each transaction with a journal of the store's name.
                return branches.contains { $0.journal?.identity == journal?.identity } ? nil : journal
            },
            ownWriters: false, in: GroupContainer.child(SavedBranches.nameDirectory, of: place), of: store.path,
            subject: "the store at its name", external: record == nil ? nil : store, record: record)
    }

    /// Copies one branch.
    ///
    /// - Parameters:
    ///   - recording: True for a copy that outlives this process if it is killed.
    ///   - held: The branch's files as they were opened before; nil to open them now.
    static func copy(
        _ branch: OrphanedBranch, _ number: Int, of store: StoreLocation, in place: Directory, recording: Bool,
        _ held: HeldBranch? = nil
    ) throws -> BranchCopy {
        guard let component = FilePath.Component("branch-\(number)") else { throw lost(branch, store.path) }
        let record = recording ? BranchRecord(name: store.name.database, branch: branch.record) : nil
        let kept = place.path.appending(component)
        // What a failed attempt has copied is removed while the files themselves can't go.
        let held = record == nil ? nil : held ?? (try? HeldBranch(branch))
        func copied(_ file: (BranchFile) -> BranchFile) throws -> BranchCopy {
            try BranchCopy(
                file(branch.database), branch.log.map(file),
                journal: .held(store.name.database, store.directory, entriesChanged: branch.entriesChanged) {
                    branch.journal
                },
                index: branch.indexFile.map(file),
                indexes: branch.indexes.map { BranchIndex(file: file($0.file), holders: $0.holders) },
                ownWriters: !branch.sharesDatabase, in: GroupContainer.child(component, of: place), of: store.path,
                subject: "what \(branch.holders.list) has open", external: store, record: record)
        }
        do {
            guard branch.log != nil || branch.index == nil else { throw logNotFound(branch, store.path) }
            if let holder = branch.holderOfSeveral { throw severalLogs(holder, store.path) }
            do { return try copied { $0 } } catch is BranchFile.Lost {
                // The program has ended since. Its log has all that it has committed, and is open here.
                guard let held, branch.log != nil else { throw BranchFile.Lost() }
                return try copied(held.file)
            }
        } catch is BranchFile.Lost {
            guard let held, let record, (try? held.keep(in: GroupContainer.child(component, of: place), record)) != nil
            else { throw lost(branch, store.path) }
            throw lost(branch, store.path, keptIn: kept)
        } catch let error where error.isNoSpace {
            // What was copied is still open, and takes the space that another branch needs.
            var isKept = record != nil
            if let held, let record { isKept = (try? held.discard(component, in: place, record)) != true }
            throw noSpace(branch, store.path, error, keptIn: isKept ? kept : nil)
        } catch let failure as RelocationFailure where failure.code == "branch_damaged" {
            // Its program may end at any time. What the copy lacks is not worth another error.
            if let record {
                try? DamagedBranch(branch, record).keep(
                    in: GroupContainer.child(component, of: place), because: failure.message)
            }
            throw failure
        }
    }

    /// Returns an archived copy of a branch with the same content.
    static func earlier(
        _ branch: ArchiveNote.Branch, _ copy: StoreLocation, of store: StoreLocation,
        in archived: [SavedBranches.Saved]
    ) throws -> SavedBranches.Saved? {
        try archived.last { saved in
            try saved.name == store.name.database && saved.branch.isOfSameFiles(as: branch)
                && haveSameContent(saved.location, copy)
        }
    }

    private static func haveSameContent(_ one: StoreLocation, _ other: StoreLocation) throws -> Bool {
        try StoreReader.read(one) { reader in
            let content = try StoreContent(reader)
            return try StoreReader.read(other) { try content.difference(from: StoreContent($0)) == nil }
        }
    }

    private static func logNotFound(_ branch: OrphanedBranch, _ store: FilePath) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "branch_damaged",
            "\(PrintablePath(store)): \(branch.holder) has the index of a log open, and the log can't be found",
            remedy: "keep the process running, and look for its log: ls -l /proc/\(branch.holder.pid)/fd")
    }

    private static func severalLogs(_ holder: FileHolder, _ store: FilePath) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "branch_damaged",
            "\(PrintablePath(store)): \(holder) has several lost logs of it open, of which only one could be joined",
            remedy: "keep the process running, and copy each of them with the database: ls -l /proc/\(holder.pid)/fd")
    }

    private static func noSpace(
        _ branch: OrphanedBranch, _ store: FilePath, _ error: any Error, keptIn place: FilePath?
    ) -> RelocationFailure {
        let kept = place.map { "; what was copied of it is kept in \(PrintablePath($0))" }
        return .noSpace(
            "\(PrintablePath(store)): what \(branch.holders.list) has open is not copied: \(error)\(kept ?? "")")
    }

    /// - Parameter place: Where its files are kept as they were when its program ended; nil for none.
    private static func lost(
        _ branch: OrphanedBranch, _ store: FilePath, keptIn place: FilePath? = nil
    ) -> RelocationFailure {
        let left =
            place.map { "its files are kept as they were in \(PrintablePath($0))" }
            ?? "nothing more can be read of what only it could see"
        return RelocationFailure(
            .badData, code: "branch_lost",
            "\(PrintablePath(store)): \(branch.holder) has closed the store or ended: \(left)",
            remedy: "see what the store has: groupstore inspect \(store.shellWord)")
    }
}
