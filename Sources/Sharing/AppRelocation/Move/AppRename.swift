import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// A move within one file system. A symbolic link is made at the new place, and the two names are exchanged in one step
/// (`RENAME_EXCHANGE` of rename(2)), which is the commit point. No name is ever absent, and the time doesn't depend on
/// the number of files.
///
/// The stores' logs move with them. No store is opened: a lease proves that none that has a log is open elsewhere, and
/// `/proc` names the programs that have any file open.
struct AppRename {
    let relocation: AppRelocation
    let move: AppMove
    let places: AppPlaces
    let container: GroupContainer

    init(_ relocation: AppRelocation, _ move: AppMove, _ places: AppPlaces, _ container: GroupContainer) {
        (self.relocation, self.move, self.places, self.container) = (relocation, move, places, container)
    }

    /// Moves the directory. Returns nil, with everything as it was, if the two places are on different file systems.
    func run() throws -> AppMoveSummary? {
        guard try places.destinationParent.status().identity.device == move.root.device else { return nil }
        try places.checkRenamable()
        let contents = try relocation.awaitClosed(places.source) { try checkClosed() }
        let notes = places.notes(contents)
        // A rename changes no row.
        let directory = try places.sourceParent.directory(places.sourceName)
        let checked = try relocation.request.recipe.map { try $0.count(in: directory, at: places.source) } ?? []
        try places.writeNote(of: move)
        try container.write(AppMoveJournal(move, .renaming))
        try relocation.step(.journalled)
        if !move.replacesLink {
            // Leads to itself until the exchange: nobody can reach anything through it.
            try places.taking { () throws(SystemError) in
                try places.destinationParent.makeSymbolicLink(places.destinationName, to: places.destination)
            }
            let moved = try places.sourceParent.directory(places.sourceName).status()
            places.destinationParent.giveLink(places.destinationName, to: moved)
        }
        try relocation.step(.linked)
        if relocation.isCancelled() { throw RelocationFailure.cancelled(places.source) }
        let recovery = AppRecovery(AppMoveJournal(move, .renaming), places, container, step: relocation.step)
        guard try exchange() else {
            _ = try recovery.end(keepingCopy: false)
            return nil
        }
        try relocation.step(.renamed)
        var summary = relocation.summary(move.undoes == nil ? .moved : .undone, places)
        guard case .finished(_, let further) = try recovery.end(keepingCopy: false) else {
            throw RelocationFailure.app(
                .failed, "replaced", "\(PrintablePath(places.source)) was replaced during its move",
                "see which of the two places is the right one, then run this again")
        }
        (summary.method, summary.contents, summary.notes) = (.rename, contents, notes + further)
        summary.checked = checked
        return summary
    }

    /// Exchanges the directory and the link. Returns false if they are on different file systems.
    private func exchange() throws -> Bool {
        do throws(SystemError) {
            try places.sourceParent.rename(
                places.sourceName, to: places.destinationName, in: places.destinationParent, .exchange)
            return true
        } catch {
            guard error.errno == .improperLink else { throw error }
            return false
        }
    }

    /// Returns what the directory contains. Throws `AppHeld` or `AppFileHeld` if a program uses it.
    private func checkClosed() throws -> AppContents {
        let root = try places.sourceParent.directory(places.sourceName)
        let survey = try AppSurvey(root, .names)
        let holders = AppHolders.find(device: move.root.device, survey, under: places.source)
        guard holders.isEmpty else { throw AppHeld(holders: holders) }
        for store in survey.active { try checkLease(root, store) }
        return survey.contents
    }

    /// A process that isn't visible from here may have the store open too. Where leases don't exist, it goes on with
    /// the same file under its new name.
    private func checkLease(_ root: Directory, _ store: FilePath) throws {
        guard let name = store.lastComponent else { return }
        let directory = try root.descendant(store.removingLastComponent())
        do {
            let file = try directory.open(name, flags: O_RDONLY)
            guard try file.withLease(.write, {}) != nil else {
                throw AppFileHeld(path: directory.path.appending(name), identity: try file.status().identity)
            }
        } catch let error as SystemError where error.isLeaseConflict {
            throw AppChanged(path: directory.path.appending(name))
        } catch is SystemError {}
    }
}

extension Directory {
    /// Opens the directory at a relative path, name by name. Follows no symbolic link.
    func descendant(_ path: FilePath) throws(SystemError) -> Directory {
        var found = self
        for name in path.components { found = try found.directory(name) }
        return found
    }
}
