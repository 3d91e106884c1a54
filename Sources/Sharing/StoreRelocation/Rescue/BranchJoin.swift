import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The steps by which the branches of a split store become one store again, under the store's claim and the group's
/// lock. What a branch is, and how branches are merged, is not known here.
package struct BranchJoin {
    let relocation: Relocation
    let endpoints: RelocationEndpoints

    /// The store at its name.
    package var store: StoreLocation { endpoints.group }
    package var container: GroupContainer { endpoints.container }

    package var settlement: BranchSettlement { BranchSettlement(container) }
    package var saved: SavedBranches { SavedBranches(container) }
    /// The programs that are asked to close the store.
    package var presenters: [FileHolder] {
        relocation.registry.presenters(of: container.item(store.name.database)).map(\.holder)
    }

    /// Puts a finished copy of a branch into the archive of the store's directory. Returns its location there.
    package func archive(_ copy: StoreLocation, reason: String, branch: ArchiveNote.Branch) throws -> StoreLocation {
        try settlement.archive(copy, of: store.name.database, reason: reason, branch: branch)
    }

    /// Moves a branch's log and index from the store's name into the archive: a program that opens the store would take
    /// them for the store's own. The programs that have them open keep them.
    ///
    /// A journal may be the present store's too: SQLite reuses the file that lies at the journal's name. It is moved
    /// only while no program has the database at the store's name open.
    ///
    /// - Parameter reason: A sentence for the user on why they are there.
    /// - Throws: `StoreTransfer.RetryReason.held` if a program has that database open beside a journal.
    package func setAside(_ names: [FilePath.Component], reason: String) throws {
        guard !names.isEmpty else { return }
        guard names.contains(store.name.journal), let database = try file?.identity else {
            return try move(names, reason)
        }
        let descriptor = try store.directory.open(store.name.database, flags: O_RDWR)
        guard let lease = try StoreTransfer.lease(descriptor) else { throw StoreTransfer.RetryReason.held(database) }
        try withExtendedLifetime(lease) { _ in try move(names, reason) }
    }

    private func move(_ names: [FilePath.Component], _ reason: String) throws {
        let id = TransferIdentifier()
        try container.write(
            ArchiveNote(id: id, name: store.name.database, from: store.path, at: Date(), reason: reason))
        let archive = try container.archive(id)
        // The log first: an index without a log is rebuilt, and a log without its index is replayed.
        for name in names.sorted(by: { $0.string > $1.string }) where try store.directory.status(name) != nil {
            try store.directory.rename(name, to: name, in: archive, .refuse)
        }
        try archive.synchronize()
        try store.directory.synchronize()
    }

    /// Records in an archived branch's note that the store has its rows.
    package func noteJoined(_ branch: StoreLocation) throws {
        guard let id = branch.directory.path.lastComponent.flatMap({ TransferIdentifier($0.string) }),
            var note = try container.archivedSet(id)?.note
        else { return }
        note.branch?.isJoined = true
        note.branch?.store = try file
        try container.write(note)
    }

    /// The file at the store's name; nil if there is none.
    package var file: ArchiveNote.Branch.File? {
        get throws {
            try store.directory.identity(store.name.database).map {
                ArchiveNote.Branch.File(identity: $0, birth: store.directory.birth(store.name.database))
            }
        }
    }

    /// Gives a copy of a branch the store's name, at which there is nothing. Throws `SystemError` if there is something
    /// meanwhile.
    ///
    /// - Parameter original: The archived branch, whose owner, mode and other attributes the copy gets.
    package func publish(_ copy: StoreLocation, like original: StoreLocation, inWAL: Bool) throws {
        let source = try original.directory.open(original.name.database, flags: O_RDONLY)
        let status = try source.status(path: original.path)
        let file = try copy.directory.open(copy.name.database, flags: O_RDWR)
        if inWAL { try file.write([2, 2], at: 18, path: copy.path) }
        try file.copyAttributes(of: source, status, path: copy.path)
        try file.synchronize(path: copy.path)
        try copy.directory.rename(copy.name.database, to: store.name.database, in: store.directory, .refuse)
        try store.directory.synchronize()
        try copy.directory.synchronize()
    }

    /// Replaces the store by a store that the combination makes of it and a branch, as a merge does. The original goes
    /// to the archive.
    package func merge(
        _ combination: any StoreCombination, with branch: StoreLocation
    ) throws -> (report: MergeReport?, archive: FilePath?, notes: [String]) {
        let snapshot = try StoreSnapshot(store)
        let decision = try relocation.decisionInPlace(endpoints)
        let hash = try StoreContents.publishedHash(StoreSnapshot(branch))
        let content = PublishedContent.merged(combination, legacy: branch, hash: hash)
        let outcome = try relocation.publish(.init(publishing: content, of: snapshot, decision, inPlace: true))
        return (outcome.merge, outcome.mergeArchive, outcome.notes)
    }

    /// Returns a new private directory for the copies of one run, `.groupstore/rescue/ID`.
    package func copies(_ id: TransferIdentifier) throws -> Directory {
        try GroupContainer.child(
            id.component, of: GroupContainer.child(SavedBranches.directoryName, of: container.bookkeeping()))
    }

    /// Removes a copy of a branch, and the directory of its run if it was the last one. Its content must be elsewhere.
    package func discardCopy(_ copy: SavedBranches.Saved) throws {
        let place = copy.location.directory.path
        guard let parent = try saved.directory(), let name = place.lastComponent,
            let run = place.removingLastComponent().lastComponent
        else { return }
        let directory = try parent.directory(run)
        try directory.removeTree(name)
        if try directory.names().isEmpty { try parent.removeDirectory(run) }
        try removeIfEmpty(parent)
    }

    /// Removes what is left of the copies of one run. Everything in them must be elsewhere.
    package func discardCopies(_ id: TransferIdentifier) throws {
        guard let parent = try saved.directory() else { return }
        try parent.removeTree(id.component)
        try removeIfEmpty(parent)
    }

    private func removeIfEmpty(_ parent: Directory) throws {
        if try parent.names().isEmpty { try container.bookkeeping().removeDirectory(SavedBranches.directoryName) }
    }
}

extension Relocation {
    /// Moves the copies that interrupted rescues have left into the archive, of all stores of the group
    /// (`BranchSettlement.run`). Returns a sentence for each.
    package func settleBranches(
        isOpen: (SavedBranches.Saved) -> Bool, discard: (SavedBranches.Saved, Directory) throws -> Bool
    ) throws -> [String] {
        let container = try RelocationEndpoints.container(request.group)
        return try withGroupLock(container) {
            try BranchSettlement(container).run(of: nil, isOpen: isOpen, discard: discard)
        }
    }

    /// Runs `body` under the group's lock alone: no presenter is asked for anything, and no program waited for.
    package func withoutClaim<Result>(_ body: (BranchJoin) throws -> Result) throws(RelocationFailure) -> Result {
        do {
            let endpoints = try RelocationEndpoints(inPlace: request)
            return try withGroupLock(endpoints.container) {
                try body(BranchJoin(relocation: self, endpoints: endpoints))
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Runs `body` under the store's claim and the group's lock, once an interrupted transfer of the store is finished
    /// or undone. The request's source is the store, its group the store's directory.
    ///
    /// `body` runs again if a program keeps the store open meanwhile, until the deadline. Throws `RelocationFailure`.
    package func joiningBranches<Result>(
        _ body: (BranchJoin) throws -> Result
    ) throws(RelocationFailure) -> Result {
        do {
            let endpoints = try RelocationEndpoints(request)
            let relocation = try claiming(endpoints.group.name.database, in: endpoints.container)
            defer { relocation.claim?.end(published: false) }
            return try relocation.withGroupLock(endpoints.container, afterRecovering: [endpoints.group]) {
                let endpoints = try RelocationEndpoints(request)
                relocation.relinquish(endpoints)
                defer { relocation.reacquire(endpoints) }
                return try body(BranchJoin(relocation: relocation, endpoints: endpoints))
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }
}
