import FileCoordination
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import StoreMerging
import StoreRelocation
import SystemPackage

/// Joins the histories of a store that was split: the one at its name, and those of programs that have lost files of
/// it open (Documentation/StoresInDanger.md).
package struct StoreRescue {
    private let request: RelocationRequest
    private let store: StoreLocation
    private let registry: any PresenterRegistry
    private let options: MergeOptions
    private let baseMargin: Duration?
    private let isCancelled: @Sendable () -> Bool
    private let report: (RelocationEvent) -> Void

    /// - Parameters:
    ///   - request: The store as the source, its directory as the group, and the deadline.
    ///   - registry: The presenters that are asked to let go of the store.
    ///   - baseMargin: `BaseContradiction.margin` to join with the database that the logs share as the common base; nil
    ///     to join two ways, by which no row is deleted.
    package init(
        _ store: StoreLocation, _ options: MergeOptions, _ request: RelocationRequest,
        registry: any PresenterRegistry = InProcessRegistry(), baseMargin: Duration? = nil,
        isCancelled: @escaping @Sendable () -> Bool = { false },
        report: @escaping (RelocationEvent) -> Void = { _ in }
    ) {
        (self.store, self.request, self.registry) = (store, request, registry)
        (self.isCancelled, self.report, self.baseMargin) = (isCancelled, report, baseMargin)
        var options = options
        // A person decides about each of them.
        options.differencesShown = 10_000
        self.options = options
    }

    private var container: GroupContainer { GroupContainer(directory: store.directory) }
    private var rescue: RescueJoin {
        RescueJoin(
            store: store, options: options, baseMargin: baseMargin, isCancelled: isCancelled, report: report)
    }
    private var name: FilePath.Component { store.name.database }

    /// True if an interrupted rescue has left copies of the store's branches, whole or not, or an archive that is not
    /// joined yet.
    package static func isUnfinished(_ store: StoreLocation) throws -> Bool {
        let saved = SavedBranches(GroupContainer(directory: store.directory))
        return try saved.copies().contains { $0.name == store.name.database }
            || !saved.unjoined(store.name.database, open: []).isEmpty
            || saved.unfinished().contains { $0 == nil || $0?.name == store.name.database }
    }

    private var nothing: RescueReport {
        var report = RescueReport()
        report.notes = RenamedDatabase.notes(store)
        return report
    }

    /// Removes directories without a copy, which an interrupted rescue has left. Returns that there is nothing to do.
    private func removingEmptyPlaces(_ engine: Relocation) throws -> RescueReport {
        if try SavedBranches(container).hasEmptyPlaces() { try engine.withoutClaim { try settle($0, []) } }
        return nothing
    }

    /// The damaged branches of the store that rescues have kept.
    private var damaged: [SavedBranches.Saved] {
        ((try? SavedBranches(container).damaged()) ?? []).filter { $0.name == name }
    }

    /// Throws for the first damaged branch that an earlier rescue has kept, if there is one.
    private func checkDamaged() throws(RelocationFailure) {
        if let first = damaged.first { throw RelocationFailure.keptDamaged(first) }
    }

    /// Names the damaged branches that rescues have kept. Their files stay until a person removes them.
    private func noteDamaged() { damaged.compactMap(\.damageSentence).forEach { report(.note($0)) } }

    // MARK: Dry run

    /// Returns what `run` would do. Everything is copied to a private directory under `$TMPDIR`; nothing is changed.
    package func dryRun() throws -> RescueReport {
        // Another rescue may archive or join the copies that this one has found.
        for _ in 0..<3 { do { return try look() } catch StoreError.missing where !isCancelled() {} }
        return try look()
    }

    private func look() throws -> RescueReport {
        var result = RescueReport()
        let branches = OrphanedBranch.find(store)
        let open = branches.map(\.record)
        let saved = SavedBranches(container)
        let left = try saved.copies().filter { $0.name == name && !$0.isOfName && !$0.isOpen(open) }
        let ended = try saved.unjoined(name, open: open).filter { !store.hasFiles(of: $0) } + left
        guard !branches.isEmpty || !ended.isEmpty else {
            try checkDamaged()
            return nothing
        }
        noteDamaged()
        do throws(RelocationFailure) {
            try store.checkSwapped(branches)
            try store.checkKind()
        } catch { throw error.described(of: store) }
        let scratch = try ScratchDirectory()
        try withExtendedLifetime(scratch) {
            var copies = try BranchCopies(
                branches, ended, of: store, without: store.foreign(branches, ended), in: Directory(scratch.path),
                archived: saved.archived(), baseMargin: baseMargin, recording: false)
            result.branches = copies.reported
            copies.branches.removeAll(where: \.isJoined)
            guard !copies.branches.isEmpty || !ended.isEmpty else { return }
            try store.checkHardLinks()
            result.merge = try rescue.rehearse(copies)
            result.notes += [copies.doubt].compactMap(\.self)
            result.notes += result.merge?.notes ?? []
            result.outcome = .rescued
        }
        return result
    }

    // MARK: Run

    /// Joins the branches. Throws `RelocationFailure`; the store at the name then has what it had.
    package func run() throws -> RescueReport {
        let branches = OrphanedBranch.find(store)
        let engine = Relocation(request, registry: registry, isCancelled: isCancelled, report: report)
        guard try !branches.isEmpty || Self.isUnfinished(store) else { return try removingEmptyPlaces(engine) }
        let id = TransferIdentifier()
        var result: RescueReport
        do {
            try store.checkSwapped(branches)
            // First of all: the claim asks presenters to close the store, and a program that has a branch may be one
            // of them, or end while others are waited for.
            if !branches.isEmpty { try engine.withoutClaim { try save(branches, $0, in: $0.copies(id)) } }
            try store.checkKind()
            let entriesChanged = branches.first?.entriesChanged
            result = try engine.joiningBranches { try join($0, saved: id, entriesChanged) }
            if branches.isEmpty, result.branches.isEmpty { try checkDamaged() }
        } catch {
            let failure = error.sparing(branches.flatMap { $0.holders }, of: store.path)
            // A program that must close the store at its name may close its branch with it. The copies of what other
            // programs have open stay too: these may end before the next rescue.
            let mustClose = Set(failure.holders.map(\.pid))
            let open = OrphanedBranch.find(store).filter { $0.holders.allSatisfy { !mustClose.contains($0.pid) } }
            try? engine.withoutClaim {
                try settle($0, open)
                _ = try discardArchived($0, id)
            }
            noteDamaged()
            throw failure.asRefusal.described(of: store)
        }
        noteDamaged()
        result.remaining = HazardScan([(store.name, store.directory)], readsLogs: true).hazards()
        return result
    }

    // MARK: Copy

    /// Copies the branches to `.groupstore/rescue` and joins nothing. A later rescue finds them there, also if their
    /// programs have ended meanwhile. Earlier copies of the same files are removed. A branch whose content the archive
    /// has already is not kept twice.
    ///
    /// - Parameter limit: The number of bytes that the branches may have together; nil for no limit. Half of the free
    ///   space stays free then.
    /// - Throws: `RelocationFailure` for the first branch that can't be copied, once the others are.
    package func copyBranches(limit: Int64? = nil) throws -> RescueReport {
        let branches = OrphanedBranch.find(store)
        let engine = Relocation(request, registry: registry, isCancelled: isCancelled, report: report)
        guard !branches.isEmpty else {
            _ = try removingEmptyPlaces(engine)
            return try earlierCopies()
        }
        return try engine.withoutClaim { join in
            var result = RescueReport()
            result.outcome = .copied
            let id = TransferIdentifier()
            let run = try join.copies(id)
            var (copied, failure) = copyEach(branches, in: run, limit: limit)
            do { try settle(join, branches, keeping: id) } catch { failure = failure ?? error }
            let archives = try discardArchived(join, id)
            noteDamaged()
            result.branches = copied.map { branch, copy in
                let (place, archive) = (copy.location.directory.path, archives[copy.location.directory.path])
                return RescueReport.Branch(
                    holders: branch.holders, code: branch.code.rawValue, subject: branch.holders.list,
                    commits: copy.commits, lastWrite: copy.lastWrite, changes: nil,
                    isJoined: archive?.branch.isJoined ?? false, archive: archive?.location.directory.path,
                    copy: archive == nil ? place : nil)
            }
            guard let failure else { return result }
            if try archives.isEmpty && run.names().isEmpty { try join.discardCopies(id) }
            for branch in result.branches {
                guard let place = branch.copy else { continue }
                report(.note("what \(branch.subject) has committed is copied to \(PrintablePath(place))"))
            }
            throw failure
        }
    }

    /// Returns what earlier runs have copied of programs that have ended since.
    private func earlierCopies() throws -> RescueReport {
        var result = nothing
        result.branches = kept().filter { $0.damage == nil }
        if !result.branches.isEmpty { result.outcome = .copied } else { try checkDamaged() }
        noteDamaged()
        let unfinished = ((try? SavedBranches(container).unfinished()) ?? []).compactMap(\.self)
        for copy in unfinished where copy.name == name && copy.damage == nil {
            report(.note(copy.unfinishedSentence))
        }
        return result
    }

    /// Copies each branch. One that can't be copied keeps no other from it.
    ///
    /// - Parameter limit: As in `copyBranches`.
    /// - Returns: The copies, and the first failure. The others are reported.
    private func copyEach(
        _ branches: [OrphanedBranch], in run: Directory, limit: Int64?
    ) -> (copied: [(OrphanedBranch, BranchCopy)], failure: (any Error)?) {
        var (copied, failure, left) = ([(OrphanedBranch, BranchCopy)](), (any Error)?.none, limit)
        for (number, branch) in branches.enumerated() {
            do {
                if let maximum = left {
                    let size = branch.size
                    try checkSpace(for: branch, size: size, limit: maximum, in: run)
                    left = maximum - size
                }
                try copied.append((branch, BranchCopies.copy(branch, number, of: store, in: run, recording: true)))
            } catch {
                if failure != nil { report(.note("\(RelocationFailure(error, request).message)")) }
                failure = failure ?? error
            }
        }
        return (copied, failure)
    }

    /// Removes the copies of one run whose content the archive has. Returns the archived branches by the copies'
    /// places.
    private func discardArchived(
        _ join: BranchJoin, _ id: TransferIdentifier
    ) throws -> [FilePath: SavedBranches.Saved] {
        var found: [FilePath: SavedBranches.Saved] = [:]
        let archived = try join.saved.archived()
        for copy in try join.saved.copies(of: id) where !copy.isOfName {
            guard let earlier = try BranchCopies.earlier(copy.branch, copy.location, of: store, in: archived) else {
                continue
            }
            found[copy.location.directory.path] = earlier
            try join.discardCopy(copy)
        }
        return found
    }

    /// Returns what is kept of branches that the store hasn't got, wherever it is: after a failure.
    package func kept() -> [RescueReport.Branch] {
        let saved = SavedBranches(container)
        let branches = OrphanedBranch.find(store)
        func entry(_ copy: SavedBranches.Saved, isArchive: Bool) -> RescueReport.Branch {
            let open = branches.first { copy.branch.isOfSameFiles(as: $0.record) }
            let place = copy.location.directory.path
            return RescueReport.Branch(
                holders: open?.holders ?? [], code: open?.code.rawValue ?? "archived", subject: copy.branch.holders,
                changes: nil, isJoined: false, archive: isArchive ? place : nil, copy: isArchive ? nil : place,
                damage: copy.damage)
        }
        let copies = ((try? saved.copies()) ?? []).filter { !$0.isOfName } + ((try? saved.damaged()) ?? [])
        let archived = (try? saved.unjoined(name, open: [])) ?? []
        return copies.filter { $0.name == name }.map { entry($0, isArchive: false) }
            + archived.map { entry($0, isArchive: true) }
    }

    private func checkSpace(for branch: OrphanedBranch, size: Int64, limit: Int64, in run: Directory) throws {
        let subject = "\(PrintablePath(store.path)): what \(branch.holders.list) has open is not copied: "
        let remedy =
            "keep the process running, and join what it has committed: groupstore rescue \(store.path.shellWord)"
        guard size <= limit else {
            throw RelocationFailure(
                .unusablePlace, code: "too_large",
                subject + "it has \(ByteCount(size)), and \(ByteCount(max(limit, 0))) are allowed", remedy: remedy)
        }
        // The log's pages go to the copied database too.
        let (needed, free) = (UInt64(size) * 4, try run.fileSystem().available)
        guard needed <= free else {
            throw RelocationFailure(
                .unusablePlace, code: "no_space",
                subject + "\(ByteCount(free)) are free, and \(ByteCount(needed)) are needed so that half stays free",
                remedy: remedy)
        }
    }

    /// Copies the branches to `.groupstore/rescue`, where they survive this process and theirs. Throws for the first
    /// one that can't be copied, once the others are.
    private func save(_ branches: [OrphanedBranch], _ join: BranchJoin, in place: Directory) throws {
        if let failure = copyEach(branches, in: place, limit: nil).failure { throw failure }
        let presenters = Set(join.presenters.map(\.pid))
        let sharing = branches.first { branch in
            branch.sharesDatabase && branch.holders.contains { presenters.contains($0.pid) }
        }
        guard let sharing else { return }
        // A presenter that closes its lost log checkpoints it into the store, and removes the log at the store's name.
        let record = ArchiveNote.Branch(
            database: sharing.record.database, log: nil, holders: "programs that have the store open by its name")
        _ = try BranchCopies.name(
            of: store, without: store.foreign(branches, []), branches, in: place,
            record: BranchRecord(name: name, branch: record))
    }

    /// Archives the saved copies of branches that no program has open any more.
    private func settle(
        _ join: BranchJoin, _ branches: [OrphanedBranch], keeping kept: TransferIdentifier? = nil
    ) throws {
        let open = branches.map(\.record)
        let notes = try join.settlement.run(
            of: name, keeping: kept, isOpen: { $0.isOpen(open) }, discard: branches.discard)
        notes.forEach { report(.note($0)) }
    }

    private func join(
        _ join: BranchJoin, saved: TransferIdentifier, _ entriesChanged: Int64?
    ) throws -> RescueReport {
        var result = RescueReport()
        let branches = OrphanedBranch.find(store, entriesChanged: entriesChanged)
        let open = branches.map(\.record)
        try settle(join, branches, keeping: saved)
        var ended = try join.saved.unjoined(name, open: open)
        for saved in ended where store.hasFiles(of: saved) { try join.noteJoined(saved.location) }
        ended.removeAll(where: store.hasFiles)
        if !branches.isEmpty || !ended.isEmpty {
            let id = TransferIdentifier()
            try rescue.run(branches, ended, join, in: join.copies(id), &result)
            // What is left of the copies is in the archive too, or was joined before.
            try join.discardCopies(id)
        }
        try join.discardCopies(saved)
        return result
    }
}
