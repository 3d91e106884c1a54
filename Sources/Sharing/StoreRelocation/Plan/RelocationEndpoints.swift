import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The two ends of a relocation, with their directories open and their links resolved.
struct RelocationEndpoints {
    let container: GroupContainer
    let legacy: StoreLocation
    let group: StoreLocation

    /// The legacy directory doesn't exist, so there is no legacy store.
    struct NoLegacyDirectory: Error {}

    init(_ request: RelocationRequest) throws {
        container = try Self.container(request.group, request.identifier)
        guard let component = request.name ?? request.source.lastComponent, let name = StoreName(component)
        else {
            throw RelocationFailure.badName(request.name.map { FilePath(root: nil, [$0]) } ?? request.source)
        }
        group = StoreLocation(directory: container.directory, name: name)
        legacy = try Self.resolve(request.source)
        try checkLegacyIsNotInGroup(request.source)
        try checkIsNoLeftLink(request.source)
    }

    /// The places of a store that stays in its directory, whatever is at its name: the source isn't resolved.
    init(inPlace request: RelocationRequest) throws {
        container = try Self.container(request.group, request.identifier)
        guard let name = request.source.lastComponent.flatMap(StoreName.init) else {
            throw RelocationFailure.badName(request.source)
        }
        group = StoreLocation(directory: container.directory, name: name)
        legacy = group
    }

    /// Throws `RelocationFailure` if the source is, through any links, a store of this group with a name other than the
    /// requested one. Programs know such a store by the name that it has.
    private func checkLegacyIsNotInGroup(_ source: FilePath) throws {
        guard !GroupContainer.isBookkeeping(legacy.directory.path) else {
            throw RelocationFailure.insideBookkeeping(legacy.directory.path, copy: true)
        }
        guard legacy.directory.identity == group.directory.identity, legacy.name != group.name else { return }
        throw RelocationFailure.alreadyInGroup(source, as: legacy.name.database, in: container)
    }

    /// Throws `RelocationFailure` if the source is the link that a relocation left, or leads to it, and the store isn't
    /// in this group: it was relocated, once. To relocate it from there, it is named where it is.
    private func checkIsNoLeftLink(_ source: FilePath) throws {
        guard legacy.directory.identity != group.directory.identity, let link = try? Self.unresolved(source),
            try link.directory.status(link.name.database)?.kind == .symbolicLink
        else { return }
        let receipt = try GroupContainer(directory: legacy.directory).receipts(of: legacy.name.database).last
        // Of a store that has left this group since.
        let former = try container.receipts(of: group.name.database).last
        guard receipt?.retirement == .symlink || former?.from.path == link.path && former?.retirement == .symlink else {
            return
        }
        throw RelocationFailure(
            .unusablePlace, code: "relocated_elsewhere",
            "\(PrintablePath(link.path)) leads to \(PrintablePath(legacy.path)), where the store was relocated to",
            remedy: "relocate it from there: \(group.relocationCommand(of: legacy.path))")
    }

    /// Throws `RelocationFailure` if the legacy store's file is one of this group's files, mounted elsewhere.
    func checkIsNotAGroupFile(_ legacy: StoreSnapshot) throws {
        guard let identity = legacy.status?.identity, identity.device == container.directory.identity.device else {
            return
        }
        for name in try container.directory.names() where try container.directory.identity(name) == identity {
            throw RelocationFailure.alreadyInGroup(self.legacy.path, as: name, in: container)
        }
    }

    static func container(_ path: FilePath, _ identifier: GroupIdentifier? = nil) throws -> GroupContainer {
        let directory: Directory
        do throws(SystemError) {
            directory = try Directory(resolving: path)
        } catch {
            guard error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory else { throw error }
            throw RelocationFailure.noGroupDirectory(path)
        }
        guard !GroupContainer.isBookkeeping(directory.path) else {
            throw RelocationFailure.insideBookkeeping(directory.path)
        }
        return GroupContainer(directory: directory, identifier: identifier)
    }

    /// Returns the location where SQLite would open the store: SQLite follows a symbolic link at the store's name and
    /// names the side files after its target.
    static func resolve(_ path: FilePath) throws -> StoreLocation {
        do {
            let (directory, last) = try Directory.resolving(file: path)
            guard let name = StoreName.existing(last) else {
                throw RelocationFailure.badName(directory.path.appending(last))
            }
            return StoreLocation(directory: directory, name: name)
        } catch let error as SystemError where error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory {
            throw NoLegacyDirectory()
        }
    }

    /// Returns the location with its directory resolved, but not a symbolic link at the store's name.
    static func unresolved(_ path: FilePath) throws -> StoreLocation {
        guard let last = path.lastComponent, let name = StoreName.existing(last) else {
            throw RelocationFailure.badName(path)
        }
        let parent = path.removingLastComponent()
        do throws(SystemError) {
            return StoreLocation(directory: try Directory(resolving: parent.isEmpty ? "." : parent), name: name)
        } catch {
            guard error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory else { throw error }
            throw NoLegacyDirectory()
        }
    }

    /// Throws unless the endpoints are the expected files. From here on everything is done in the two open directories.
    ///
    /// A source that an interrupted run has taken away, or that now leads to the group's store, passes: it is not
    /// moved.
    func check(_ expected: RelocationRequest.Expectation?) throws {
        guard let expected else { return }
        let source = try legacy.directory.status(legacy.name.database)
        guard expected.group == container.directory.identity,
            source == nil || isSameStore || source?.identity == expected.source
        else {
            throw RelocationFailure(
                .unusablePlace, code: "replaced",
                "another file or directory has replaced one of the two places",
                remedy: "look at both, then try again")
        }
    }

    /// Returns false if nothing needs the group's lock: there is no legacy file and no interrupted transfer.
    func hasWork() throws -> Bool {
        if try container.journal() != nil || isUnfinished() { return true }
        let legacy = try StoreSnapshot(legacy)
        if case .empty = legacy.database { return legacy.needsQuiescing }
        return legacy.status != nil || legacy.wal != nil || legacy.journal != nil
    }

    /// Returns true if the old name is a symbolic link to the new one and nothing was interrupted.
    func isRelocatedByLink() throws -> Bool {
        try container.journal() == nil && isSameStore && !isUnfinished()
    }

    /// Returns true if a transfer of one of the two stores was interrupted.
    func isUnfinished() throws -> Bool { try container.journals().contains { try isUnfinished($0) } }

    func isUnfinished(_ journal: TransferJournal) throws -> Bool {
        [legacy, group].contains { journal.affects($0.name.database, in: $0.directory, of: container) }
    }

    /// True if the old name leads to the new one.
    var isSameStore: Bool { legacy.directory.identity == group.directory.identity && legacy.name == group.name }

    /// Returns true if the group's name is the link that `--retire symlink` left when the legacy store was relocated
    /// from there: it leads to that store, and the store's last receipt names it. The store may then return to its
    /// place.
    func isGroupNameLeftLink() throws -> Bool {
        guard try group.directory.status(group.name.database)?.kind == .symbolicLink,
            let target = FileStatus(following: group.path)?.identity,
            try target == legacy.directory.identity(legacy.name.database)
        else { return false }
        let receipt = try GroupContainer(directory: legacy.directory).receipts(of: legacy.name.database).last
        return receipt?.from.path == group.path && receipt?.retirement == .symlink
    }

    /// Returns how the two names relate. Meaningful only if both exist.
    func relation(_ legacy: StoreSnapshot, _ group: StoreSnapshot) -> RelocationEvidence.Relation {
        guard let identity = legacy.status?.identity, identity == group.status?.identity else { return .separate }
        let sameDirectory = self.legacy.directory.identity == self.group.directory.identity
        return sameDirectory && self.legacy.name == self.group.name ? .sameEntry : .twoNames
    }
}

extension Relocation {
    /// Returns true if the file may be a store: a SQLite database, or an encrypted one. One that this user can't read
    /// may be a store, too.
    ///
    /// For a process that doesn't have it open.
    package static func mayBeStore(_ path: FilePath) -> Bool {
        guard let status = FileStatus(following: path), status.kind == .regular else { return false }
        guard let snapshot = try? StoreSnapshot(RelocationEndpoints.resolve(path)) else { return status.size > 0 }
        return snapshot.mayBeStore
    }
}

extension StoreLocation {
    /// The command that relocates a store to this place. A name may begin with a hyphen.
    func relocationCommand(of store: FilePath) -> String {
        let isRenamed = store.lastComponent != name.database
        return "groupstore relocate \(store.shellWord) \(directory.path.shellWord)"
            + (isRenamed ? " --name=\(FilePath(root: nil, [name.database]).shellWord)" : "")
    }
}
