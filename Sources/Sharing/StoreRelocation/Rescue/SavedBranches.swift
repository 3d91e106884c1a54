import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The copies of branches in a directory: those in its archive, and those in `.groupstore/rescue`, where a rescue that
/// runs makes them and one that was killed has left them. Reading them changes nothing.
package struct SavedBranches {
    /// A copy of a branch: a whole one, or a damaged branch's files as they were.
    package struct Saved {
        package let location: StoreLocation
        /// The name of the store.
        package let name: FilePath.Component
        package let branch: ArchiveNote.Branch
        /// Why the branch can't be joined; nil for a whole copy.
        package var damage: String?
        /// True for a copy of what was at the store's name.
        package var isOfName: Bool { location.directory.path.lastComponent == SavedBranches.nameDirectory }

        func isOfSameFiles(as other: Saved) -> Bool {
            isOfName == other.isOfName && (damage == nil) == (other.damage == nil)
                && branch.isOfSameFiles(as: other.branch)
        }

        /// True if `other`, a whole copy, has all that this one has of the same files: it was begun later. False if the
        /// file system has no creation times.
        func isOlder(than other: Saved) -> Bool {
            guard name == other.name, isOfSameFiles(as: other), let begun else { return false }
            return other.begun.map { begun < $0 } ?? false
        }

        private var begun: Int64? { location.directory.birth(location.name.database) }

        /// The place among the copies of the same files: a copy that was begun later has all that an earlier one has.
        /// Where the file system has no creation times, the time at which the copy got its name.
        package var order: Int64 { get throws { try begun ?? finished } }

        /// A sentence on a damaged branch and the place of its files.
        package var damageSentence: String? {
            damage.map { damage in
                "\(damage); it is not joined, and its files as they were are kept in "
                    + "\(PrintablePath(location.directory.path))"
            }
        }

        /// A sentence on a copy that was not finished.
        package var unfinishedSentence: String {
            "a copy that was not finished, of what \(branch.holders) had committed, is in "
                + "\(PrintablePath(location.directory.path))"
        }

        /// The commands by which a person gets what SQLite can read of a damaged branch.
        package var damageRemedy: String {
            let place = location.directory.path.shellWord
            return "look for its rows in a copy of the files, and remove these once you have them: "
                + "d=$(mktemp -d) && cp \(place)/damaged* \"$d\" && sqlite3 \"$d/damaged\" .dump"
        }

        /// The time at which the copy got its name.
        package var finished: Int64 {
            get throws { try location.directory.status(location.name.database)?.changed ?? 0 }
        }
    }

    private let container: GroupContainer

    package init(_ container: GroupContainer) { self.container = container }

    /// Returns the archived branches of all stores, oldest first.
    package func archived() throws -> [Saved] {
        try ArchivedStore.all(in: container).compactMap { archived in
            guard let branch = archived.entry.note?.branch, archived.entry.isTrustedInside, archived.state == .complete,
                let name = archived.entry.name, let location = archived.location
            else { return nil }
            return Saved(location: location, name: name, branch: branch)
        }
    }

    /// Returns the archived branches of a store whose rows it hasn't got, and whose files no program has open.
    ///
    /// - Parameter open: The branches that programs have open. A copy of one is older than its files.
    package func unjoined(_ store: FilePath.Component, open: [ArchiveNote.Branch]) throws -> [Saved] {
        let copies = try archived().filter { $0.name == store }
        // Rescues that run at once may archive an earlier copy after a later one.
        let order = try copies.map { try $0.order }
        return copies.indices.filter { place in
            let copy = copies[place].branch
            guard !copy.isJoined, !open.contains(where: copy.isOfSameFiles) else { return false }
            return !copies.indices.contains { other in
                (order[other], other) > (order[place], place) && copies[other].branch.isOfSameFiles(as: copy)
            }
        }.map { copies[$0] }
    }

    /// Returns the copies in `.groupstore/rescue`, of all stores, those first that were begun first.
    package func copies() throws -> [Saved] {
        guard let parent = try directory() else { return [] }
        let found = try parent.names().flatMap { try copies(in: parent.directory($0)) }
        return try found.map { (try $0.order, $0) }.sorted { $0.0 < $1.0 }.map(\.1)
    }

    /// Returns the whole copies of one run; none if its directory is gone.
    package func copies(of run: TransferIdentifier) throws -> [Saved] {
        guard let parent = try directory(), try parent.status(run.component) != nil else { return [] }
        return try copies(in: parent.directory(run.component))
    }

    /// Returns the whole copies of one run.
    func copies(in run: Directory) throws -> [Saved] {
        try places(in: run).compactMap { place in
            guard try place.status(Self.finishedName) != nil else { return nil }
            return try saved(in: place, as: Self.finishedName)
        }
    }

    /// Returns the files of damaged branches in `.groupstore/rescue`, of all stores, oldest first.
    package func damaged() throws -> [Saved] {
        let found = try unfinished().compactMap(\.self).filter { $0.damage != nil }
        let dated = try found.map { (try $0.finished, $0) }
        return dated.sorted { $0.0 < $1.0 }.map(\.1)
    }

    /// Returns a sentence for each branch of a store whose rows it hasn't got, with the place of its files.
    func notes(of store: FilePath.Component) throws -> [String] {
        let left = try copies().filter { $0.name == store && !$0.isOfName } + unjoined(store, open: [])
        return try damaged().filter { $0.name == store }.compactMap(\.damageSentence)
            + left.map {
                "what \($0.branch.holders) had committed to lost files of \(PrintablePath(FilePath(root: nil, [store]))) is "
                    + "kept in \(PrintablePath($0.location.directory.path)), and not joined"
            }
    }

    /// Returns what the unfinished copies in `.groupstore/rescue` would be copies of, of all stores; nil for a copy of
    /// which that isn't known.
    package func unfinished() throws -> [Saved?] {
        guard let parent = try directory() else { return [] }
        return try parent.names().flatMap { try unfinished(in: parent.directory($0)).map(\.branch) }
    }

    /// Returns the directories of one run that have files and no whole copy, each with what it would be a copy of; nil
    /// if that isn't known.
    func unfinished(in run: Directory) throws -> [(place: Directory, branch: Saved?)] {
        try places(in: run).compactMap { place in
            let whole = try place.status(Self.finishedName) != nil
            let isDamaged = try place.status(Self.damagedName) != nil
            let branch = try saved(
                in: place, as: whole ? Self.finishedName : isDamaged ? Self.damagedName : Self.unfinishedName)
            // Without a record, a copy of the store at its name is for one run: the store itself is still there.
            let isOfName = branch == nil && place.path.lastComponent == Self.nameDirectory
            let hasFiles = try place.names().contains { !BranchRecord.isRecord($0) }
            return whole && branch != nil || isOfName || !hasFiles ? nil : (place, branch)
        }
    }

    /// True if an interrupted run has left directories without a file of a copy. They aren't among the unfinished ones.
    package func hasEmptyPlaces() throws -> Bool {
        guard let parent = try directory() else { return false }
        let runs = try parent.names().map { try parent.directory($0) }
        return try runs.isEmpty || runs.contains { try $0.names().isEmpty || !emptyPlaces(in: $0).isEmpty }
    }

    /// Returns the directories of one run that have nothing but a record.
    func emptyPlaces(in run: Directory) throws -> Set<FilePath.Component> {
        let empty = try places(in: run).filter { try $0.names().allSatisfy(BranchRecord.isRecord) }
        return Set(empty.compactMap(\.path.lastComponent))
    }

    private func places(in run: Directory) throws -> [Directory] {
        try run.names().sorted { $0.string < $1.string }.compactMap { name in
            try run.status(name)?.kind == .directory ? run.directory(name) : nil
        }
    }

    private func saved(in place: Directory, as file: FilePath.Component) throws -> Saved? {
        guard let owner = try directory()?.status().owner, let record = BranchRecord.read(in: place, owner: owner),
            let store = record.name.path.lastComponent, let name = StoreName.existing(file)
        else { return nil }
        let damage = file == Self.damagedName ? record.damage ?? "a branch is damaged" : nil
        return Saved(
            location: StoreLocation(directory: place, name: name), name: store, branch: record.branch, damage: damage)
    }

    /// Returns the directory of the copies; nil if there is none.
    func directory() throws -> Directory? {
        guard let bookkeeping = try container.existingBookkeeping(),
            try bookkeeping.status(Self.directoryName) != nil
        else { return nil }
        return try bookkeeping.directory(Self.directoryName)
    }

    static let directoryName: FilePath.Component = "rescue"
    /// The directory of a run's copy of the store at its name.
    package static let nameDirectory: FilePath.Component = "name"
    /// The name of a copy that is being made.
    package static let unfinishedName: FilePath.Component = "building"
    /// The name of a copy that is whole and synced.
    package static let finishedName: FilePath.Component = "store"
    /// The name of a damaged branch's database, with its log and index beside it.
    package static let damagedName: FilePath.Component = "damaged"
}

/// Moves the copies that interrupted rescues have left.
package struct BranchSettlement {
    private let container: GroupContainer
    private var saved: SavedBranches { SavedBranches(container) }

    package init(_ container: GroupContainer) { self.container = container }

    /// Moves each copy whose files no program has open any more into the archive: nothing else has the commits. Of
    /// those of open files, the last whole one stays: the program may end at any time. Of a damaged branch the first
    /// and the last files stay, as programs overwrite each other's commits, and all once it has ended. A copy that was
    /// not finished, or that can't be read, stays where it is unless its files are open, or a whole copy of them was
    /// begun later. The caller must hold the group's lock.
    ///
    /// - Parameters:
    ///   - name: The store; nil for all stores.
    ///   - kept: A run whose copies of open files stay.
    ///   - isOpen: Returns true if a program had the branch's files open a moment ago.
    ///   - discard: Removes a copy whose content the open files alone have, in the directory of its run, while they
    ///     can't go. Returns false if the program has ended: the copy, or what takes its place, stays.
    /// - Returns: A sentence for each copy that was archived or stays.
    package func run(
        of name: FilePath.Component?, keeping kept: TransferIdentifier? = nil,
        isOpen: (SavedBranches.Saved) -> Bool, discard: (SavedBranches.Saved, Directory) throws -> Bool
    ) throws -> [String] {
        guard let parent = try saved.directory() else { return [] }
        var notes: [String] = []
        let copies = try saved.copies()
        let whole = try copies + saved.archived()
        let last = try Self.last(
            of: (copies + saved.damaged()).filter { !$0.isOfName && isOpen($0) }, run: kept)
        for run in try parent.names() {
            let directory = try parent.directory(run)
            let copies = try saved.copies(in: directory)
            let unfinished = try saved.unfinished(in: directory)
            let names = (copies + unfinished.compactMap(\.branch)).map(\.name)
            if let name, names.contains(where: { $0 != name }) { continue }
            for copy in copies where !isOpen(copy) {
                let reason =
                    copy.isOfName
                    ? "the store at its name, before a program closed a lost log of it"
                    : "what \(copy.branch.holders) had committed to lost files of the store, before it closed them"
                var branch = copy.branch
                // The store at its name is a branch only to the run in which a program may have mixed it up.
                branch.isJoined = copy.isOfName && run != kept?.component
                let archive = try archive(copy.location, of: copy.name, reason: reason, branch: branch)
                notes.append("\(reason), is kept in \(PrintablePath(archive.directory.path))")
            }
            guard run != kept?.component else {
                // What could not be copied, for lack of space perhaps.
                for case (_, let copy?) in unfinished where copy.damage == nil && isOpen(copy) {
                    if try !discard(copy, directory) { notes.append(copy.unfinishedSentence) }
                }
                continue
            }
            let left = try unfinished.filter { _, copy in
                guard let copy else { return true }
                guard copy.damage == nil else { return !isOpen(copy) }
                if whole.contains(where: { copy.isOlder(than: $0) }) { return false }
                return try !(isOpen(copy) && discard(copy, directory))
            }
            for (place, copy) in left {
                notes.append(
                    copy?.damageSentence
                        ?? "a copy that was not finished, of what a program had committed, stays in "
                        + "\(PrintablePath(place.path))")
            }
            let ofName = try copies.filter { try $0.isOfName && isOpen($0) && !discard($0, directory) }
            let stay = last.union(left.map(\.place.path) + ofName.map(\.location.directory.path))
            let empty = try saved.emptyPlaces(in: directory)
            for name in try directory.names() where !stay.contains(directory.path.appending(name)) {
                try empty.contains(name) ? directory.removeRecords(of: name) : directory.removeTree(name)
            }
            if try directory.names().isEmpty { try parent.removeDirectory(run) }
        }
        if try parent.names().isEmpty { try container.bookkeeping().removeDirectory(SavedBranches.directoryName) }
        return notes
    }

    /// Returns the places of the copies that stay: those of the run, and of each branch the one that was begun last,
    /// perhaps by another run at the same time. Of two that were begun at once, both. Of damaged branches, also those
    /// of the first copy.
    private static func last(of copies: [SavedBranches.Saved], run: TransferIdentifier?) throws -> Set<FilePath> {
        let order = try copies.map { try $0.order }
        return Set(
            copies.indices.filter { index in
                let others = copies.indices.filter {
                    copies[$0].name == copies[index].name && copies[$0].isOfSameFiles(as: copies[index])
                }.map { order[$0] }
                let place = copies[index].location.directory.path
                let isFirst = copies[index].damage != nil && order[index] == others.min()
                let isOfRun = place.removingLastComponent().lastComponent == run?.component
                return isOfRun || isFirst || order[index] == others.max()
            }.map { copies[$0].location.directory.path })
    }

    /// Puts a finished copy of a branch into the archive, by renames from `.groupstore`. Returns its location there.
    ///
    /// The note comes first, so that a copy is never in the archive without its description. A run that is killed
    /// before the database's rename leaves the copy where it is.
    ///
    /// - Parameter reason: A sentence for the user on why the copy is there.
    func archive(
        _ copy: StoreLocation, of name: FilePath.Component, reason: String, branch: ArchiveNote.Branch
    ) throws -> StoreLocation {
        guard let store = StoreName.existing(name) else {
            throw SystemError("rename", .invalidArgument, path: copy.path)
        }
        let id = TransferIdentifier()
        let from = container.directory.path.appending(name)
        var note = ArchiveNote(id: id, name: name, from: from, at: Date(), reason: reason)
        let support = try copy.directory.status(copy.name.support)?.kind == .directory
        note.hasSupport = support
        note.hadWAL = branch.hadWAL
        note.branch = branch
        try container.write(note)
        let archive = try container.archive(id)
        if support { try copy.directory.rename(copy.name.support, to: store.support, in: archive, .refuse) }
        try copy.directory.rename(copy.name.database, to: store.database, in: archive, .refuse)
        try archive.synchronize()
        try copy.directory.synchronize()
        note.archived = try archive.status(store.database).map { .init($0) }
        try container.write(note)
        return StoreLocation(directory: archive, name: store)
    }
}

extension Directory {
    /// Removes a copy's directory that has nothing but a record. Throws ENOTEMPTY if it has a file.
    fileprivate func removeRecords(of name: FilePath.Component) throws {
        let place = try directory(name)
        for record in try place.names() where BranchRecord.isRecord(record) { try place.removeFile(record) }
        try removeDirectory(name)
    }
}
