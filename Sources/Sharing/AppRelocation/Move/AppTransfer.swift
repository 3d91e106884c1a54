import CLinux
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

/// A move across file systems: lock, copy, withdraw, check, publish.
///
/// All stores are locked before the first file is copied, so that they are consistent with each other. The directory
/// then loses its name to a link that leads to the new place, where nothing is yet. Nobody can begin a new one under
/// either name. What the old directory is now must be what was copied; then the copy gets its name, which is the commit
/// point.
struct AppTransfer {
    let relocation: AppRelocation
    let move: AppMove
    let places: AppPlaces
    let container: GroupContainer

    static let copyName: FilePath.Component = "tree"
    /// The copy is made equal to a directory that changes this many times.
    private static let passes = 5

    init(_ relocation: AppRelocation, _ move: AppMove, _ places: AppPlaces, _ container: GroupContainer) {
        (self.relocation, self.move, self.places, self.container) = (relocation, move, places, container)
    }

    private struct Outcome {
        var rewritten: [RewrittenColumn] = []
        var left: [LeftCells] = []
        var notes: [String] = []
        var checked: [CheckedTable] = []
    }

    func run() throws -> AppMoveSummary {
        do {
            return try transfer()
        } catch let error as SystemError {
            // The copy, which is removed next, may have taken the last inode.
            if error.errno == .noSpace, try places.destinationParent.fileSystem().availableFiles == 0 {
                throw RelocationFailure.noInodes(places.destinationParent.path, left: 0, needed: nil)
            }
            throw SystemError(error.call, error.errno, path: error.path.map { visible($0, places.destination) })
        } catch let error as StoreError {
            throw error.at(visible(error.path, places.source))
        }
    }

    /// Returns the name that the user knows for a file in the staged copy, or in the directory while it has no name.
    private func visible(_ path: FilePath, _ place: FilePath) -> FilePath {
        var path = path
        let copy = places.destinationParent.path.appending(move.id.hiddenName(".staged")).appending(Self.copyName)
        if path.removePrefix(copy) { return place.pushing(path) }
        let hidden = places.sourceParent.path.appending(move.id.hiddenName())
        return path.removePrefix(hidden) ? places.source.pushing(path) : path
    }

    private func transfer() throws -> AppMoveSummary {
        let root = try places.sourceParent.directory(places.sourceName)
        guard move.isFile(move.root, try root.status()) else { throw AppChanged(path: places.source) }
        // Before all of it is copied.
        try places.checkRenamable(asCopy: true)
        let survey = try AppSurvey(root, .files, leaving: move.leavePatterns)
        try survey.checkCopy()
        let notes = places.notes(survey.contents) + Self.notes(survey.contents)
        try places.writeNote(of: move)
        try container.write(AppMoveJournal(move, .copying))
        try relocation.step(.journalled)
        let staging = try self.staging()
        let manifest = try AppManifest(in: staging, isNewBoot: move.boot != ProcessIdentity.current.boot)
        // What a killed run has copied takes space already.
        if manifest.entries.isEmpty { try Self.checkSpace(survey, places) }
        if try staging.status(Self.copyName)?.kind != .directory {
            try staging.makeDirectory(Self.copyName, mode: 0o700)
        }
        let copy = TreeCopy(root, to: try staging.directory(Self.copyName), manifest: manifest)
        copy.isCancelled = relocation.isCancelled
        copy.leave = move.leavePatterns
        var outcome = Outcome()
        try relocation.awaitClosed(places.source) {
            try checkHolders(root)
            outcome = try attempt(root, copy)
        }
        try relocation.step(.published)
        let recovery = AppRecovery(
            AppMoveJournal(move, .committing(copy.target.identity)), places, container, step: relocation.step)
        guard case .finished(_, let further) = try recovery.end(keepingCopy: false) else {
            throw RelocationFailure.app(
                .failed, "replaced", "\(PrintablePath(places.destination)) was replaced during the move",
                "see which of the two places is the right one, then run this again")
        }
        var summary = relocation.summary(move.undoes == nil ? .moved : .undone, places)
        (summary.method, summary.contents, summary.resumedFiles) = (.copy, survey.contents, copy.resumedFiles)
        (summary.rewritten, summary.left, summary.checked) = (outcome.rewritten, outcome.left, outcome.checked)
        summary.notes = outcome.notes + further + notes + Self.notes(lost: copy.lostAttributes)
        return summary
    }

    private func staging() throws -> Directory {
        let name = move.id.hiddenName(".staged")
        if try places.destinationParent.status(name) == nil {
            try places.destinationParent.makeDirectory(name, mode: 0o700)
        }
        return try places.destinationParent.directory(name)
    }

    static func notes(_ contents: AppContents) -> [String] {
        contents.sockets.map { "\(PrintablePath($0)) is a socket, which its program makes again: left out" }
            + contents.linksInside.map {
                "\(PrintablePath($0)) leads to its old place, and reaches the new one through the link there"
            }
            + contents.sharedFiles.map {
                "\(PrintablePath($0)) has another name outside of the directory, which keeps the old content"
            }
    }

    /// Returns a sentence about each attribute that files have lost.
    static func notes(lost: [FilePath: [String]]) -> [String] {
        var files: [String: [FilePath]] = [:]
        for (path, names) in lost {
            for name in names { files[name, default: []].append(path.isEmpty ? "." : path) }
        }
        return files.sorted { $0.key < $1.key }.compactMap { name, files in
            let what = "lost the attribute \(name), which could not be copied"
            return AppRecipe.list(files, "has \(what)", "have \(what)")
        }
    }

    /// Throws `RelocationFailure` if a copy would not fit.
    ///
    /// - Parameter own: The files of groupstore's own that are still to be made.
    static func checkSpace(_ survey: AppSurvey, _ places: AppPlaces, own: Int = 0) throws {
        let (source, directory) = (places.source, places.destinationParent)
        let fileSystem = try directory.fileSystem()
        let needed = survey.contents.files + survey.contents.directories + own
        if let files = fileSystem.availableFiles, files < UInt64(needed) {
            throw RelocationFailure.noInodes(directory.path, left: files, needed: needed)
        }
        let available = fileSystem.available
        guard let bytes = survey.contents.bytes, UInt64(survey.allocated) > available else { return }
        throw RelocationFailure.app(
            .unusablePlace, "no_space",
            "\(PrintablePath(directory.path)) has \(ByteCount(Int64(available))) left, and "
                + "\(PrintablePath(source)) has \(ByteCount(bytes))", "free space there, then try again")
    }

    private func checkHolders(_ root: Directory) throws {
        let survey = try AppSurvey(root, .names)
        let holders = AppHolders.find(device: move.root.device, survey, under: places.source)
        guard holders.isEmpty else { throw AppHeld(holders: holders) }
    }

    // MARK: - The steps

    /// Takes each step once, up to the commit point. An error leaves the directory at its old name, or gives that back.
    private func attempt(_ root: Directory, _ copy: TreeCopy) throws -> Outcome {
        let survey = try AppSurvey(root, .files)
        try survey.checkCopy()
        let kept = survey.stores.filter { store in !copy.leave.contains { $0.matches(store) } }
        let locks = try AppStoreLocks(kept, in: root)
        let counted = try relocation.request.recipe.map { try locks.count($0, at: places.source) } ?? []
        try relocation.step(.quiesced)
        copy.quiescent = locks.quiescent
        copy.isHeld = { [identities = locks.identities] in identities.contains($0) }
        try self.copy(copy, survey)
        let rewriting = try AppRewriting(move, container)?.run(in: copy.target, locks.quiescent)
        if rewriting != nil { try copy.recordRewritten() }
        try retrying("syncfs", path: places.destination) { gs_syncfs(copy.target.raw) }
        try relocation.step(.copied)
        try compare(counted, in: copy.target)
        try withdraw()
        do {
            // No name leads to a store any more: nobody needs to be locked out, and a lease needs the store closed.
            locks.release()
            copy.closeKept()
            try check(root, copy, survey, rewriting?.left ?? [])
        } catch {
            if error is AppRelocation.Abandonment { throw error }
            try giveNameBack()
            throw error
        }
        return Outcome(
            rewritten: rewriting?.columns ?? [], left: rewriting?.left ?? [],
            notes: locks.notes + (rewriting?.notes ?? []), checked: counted)
    }

    /// Throws `RelocationFailure` if a checked table of the copy has not as many rows as were counted.
    private func compare(_ counted: [CheckedTable], in copy: Directory) throws {
        guard let recipe = relocation.request.recipe else { return }
        let copied = try recipe.count(in: copy, at: places.source)
        guard let old = counted.first(where: { !copied.contains($0) }) else { return }
        let rows = copied.first { $0.check == old.check }.map { "\($0.rows)" } ?? "no"
        throw RelocationFailure.app(
            .failed, "check",
            "table \(old.check.table) of \(PrintablePath(old.check.store)) has \(rows) rows in the copy, and "
                + "\(old.rows) in the store", "nothing was moved: run this again, and report it if it stays so")
    }

    private func copy(_ copy: TreeCopy, _ survey: AppSurvey) throws {
        var (files, bytes) = (0, Int64(0))
        let contents = survey.contents
        let total = contents.bytes ?? 0
        copy.didCopy = { [relocation] _, size in
            files += 1
            bytes += size
            relocation.report(
                .copied(
                    files: min(files, contents.files), ofFiles: contents.files, bytes: min(bytes, total),
                    ofBytes: total))
            try relocation.step(.copiedFile)
        }
        for _ in 0..<Self.passes where try copy.pass() == 0 { return }
        throw AppChanged(path: places.source)
    }

    /// Exchanges the directory with a link to the new place.
    private func withdraw() throws {
        let (parent, hidden) = (places.sourceParent, move.id.hiddenName())
        try container.write(AppMoveJournal(move, .withdrawn))
        if try parent.status(hidden) == nil { try parent.makeSymbolicLink(hidden, to: places.destination) }
        parent.giveLink(hidden, to: try parent.directory(places.sourceName).status())
        try parent.rename(hidden, to: places.sourceName, in: parent, .exchange)
        try parent.synchronize()
        try relocation.step(.withdrawn)
    }

    private func check(_ root: Directory, _ copy: TreeCopy, _ survey: AppSurvey, _ left: [LeftCells]) throws {
        guard move.isFile(move.root, try places.sourceParent.status(move.id.hiddenName())) else {
            throw AppChanged(path: places.source)
        }
        relocation.request.gracePeriod.wait()
        // Who came to work there meanwhile would go on in the old directory.
        let holders = AppHolders.find(device: move.root.device, inDirectoriesOf: survey)
        guard holders.isEmpty else { throw AppHeld(holders: holders) }
        try TreeCheck(
            source: root, copy: copy, stores: Set(survey.stores + survey.active),
            assumesClosed: relocation.request.assumeClosed
        ).run()
        try relocation.step(.checked)
        try publish(copy, left)
    }

    private func publish(_ copy: TreeCopy, _ left: [LeftCells]) throws {
        var journal = AppMoveJournal(move, .committing(copy.target.identity))
        journal.left = left.isEmpty ? nil : left
        try container.write(journal)
        try relocation.step(.committing)
        if relocation.isCancelled() { throw RelocationFailure.cancelled(places.source) }
        let staging = try self.staging()
        try places.taking { () throws(SystemError) in
            try staging.rename(
                Self.copyName, to: places.destinationName, in: places.destinationParent,
                move.replacesLink ? .exchange : .refuse)
        }
        try places.destinationParent.synchronize()
    }

    private func giveNameBack() throws {
        guard let journal = try container.appJournal() else { return }
        _ = try AppRecovery(journal, places, container).end(keepingCopy: true)
    }
}

extension StoreError {
    /// The same error about another path, as far as it comes from SQLite.
    fileprivate func at(_ path: FilePath) -> StoreError {
        switch self {
        case .corrupt(let code, let message, _): .corrupt(code: code, message: message, path)
        case .busy(_, let code, let message): .busy(path, code: code, message: message)
        case .sqlite(let code, let message, _): .sqlite(code: code, message: message, path)
        case .missing, .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .superJournalElsewhere: self
        }
    }
}
