import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The two ends of a relocation, their directories open and their links resolved.
struct RelocationEndpoints {
    let container: GroupContainer
    let legacy: StoreLocation
    let group: StoreLocation

    /// The legacy directory isn't there, so neither is a legacy store.
    struct NoLegacyDirectory: Error {}

    init(_ request: RelocationRequest) throws {
        container = try Self.container(request.group, request.identifier)
        guard let component = request.name ?? request.source.lastComponent, let name = StoreName.given(component)
        else {
            throw RelocationFailure.badName(request.name.map { FilePath(root: nil, [$0]) } ?? request.source)
        }
        group = StoreLocation(directory: container.directory, name: name)
        legacy = try Self.resolve(request.source)
        try checkLegacyIsNotTheGroups(request.source)
    }

    /// Throws `RelocationFailure` where the source is a store of this group under another name than the one it is to get,
    /// through whatever links: programs know it by the name that it has.
    private func checkLegacyIsNotTheGroups(_ source: FilePath) throws {
        guard !GroupContainer.isBookkeeping(legacy.directory.path) else {
            throw RelocationFailure.insideBookkeeping(legacy.directory.path, copy: true)
        }
        guard legacy.directory.identity == group.directory.identity, legacy.name != group.name else { return }
        throw RelocationFailure.alreadyInGroup(source, legacy.name.database, container)
    }

    /// Throws `RelocationFailure` where the legacy store's file is one of this group's files, mounted elsewhere.
    func checkIsNoOther(of legacy: StoreSnapshot) throws {
        guard let identity = legacy.status?.identity, identity.device == container.directory.identity.device else {
            return
        }
        for name in try container.directory.names() where try container.directory.identity(name) == identity {
            throw RelocationFailure.alreadyInGroup(self.legacy.path, name, container)
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

    /// Where SQLite would open the store: it follows a symbolic link at the store's name, and names the side files
    /// after where that leads.
    private static func resolve(_ path: FilePath) throws -> StoreLocation {
        do {
            let (directory, last) = try Directory.resolving(file: path)
            guard let name = StoreName(last) else {
                throw RelocationFailure.badName(directory.path.appending(last))
            }
            return StoreLocation(directory: directory, name: name)
        } catch let error as SystemError where error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory {
            throw NoLegacyDirectory()
        }
    }

    /// The place itself, its directory resolved, wherever a link at the store's name leads.
    static func unresolved(_ path: FilePath) throws -> StoreLocation {
        guard let last = path.lastComponent, let name = StoreName(last) else { throw RelocationFailure.badName(path) }
        let parent = path.removingLastComponent()
        do throws(SystemError) {
            return StoreLocation(directory: try Directory(resolving: parent.isEmpty ? "." : parent), name: name)
        } catch {
            guard error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory else { throw error }
            throw NoLegacyDirectory()
        }
    }

    /// Throws unless these are the files that were meant. From here on all is done in the two directories that are held open.
    /// What an interrupted run has taken away meanwhile, or what leads to the group's store now, is none to be moved.
    func check(_ expected: RelocationRequest.Expectation?) throws {
        guard let expected else { return }
        let source = try legacy.directory.status(legacy.name.database)
        guard expected.group == container.directory.identity,
            source == nil || areOne || source?.identity == expected.source
        else {
            throw RelocationFailure(
                .unusablePlace, code: "replaced",
                "another file or directory has come to one of the two places meanwhile",
                remedy: "look at both, then try again")
        }
    }

    /// False when nothing needs the group's lock: no legacy file, and no interrupted transfer.
    func isThereAnything() throws -> Bool {
        if try container.journal() != nil || isUnfinished() { return true }
        let legacy = try StoreSnapshot(legacy)
        if case .empty = legacy.database { return legacy.needsQuiescing }
        return legacy.status != nil || legacy.wal != nil || legacy.journal != nil
    }

    /// The old name leads to the new one by a symbolic link, and nothing was interrupted.
    func isRelocatedByLink() throws -> Bool {
        try container.journal() == nil && areOne && !isUnfinished()
    }

    /// Whether a transfer of one of the two stores was interrupted.
    func isUnfinished() throws -> Bool { try container.journals().contains { try isUnfinished($0) } }

    func isUnfinished(_ journal: TransferJournal) throws -> Bool {
        [legacy, group].contains { journal.concerns($0.name.database, in: $0.directory, of: container) }
    }

    /// The old name leads to the new one.
    var areOne: Bool { legacy.directory.identity == group.directory.identity && legacy.name == group.name }

    /// How the two names relate; meaningful when both are there.
    func relation(_ legacy: StoreSnapshot, _ group: StoreSnapshot) -> RelocationEvidence.Relation {
        guard let one = legacy.status?.identity, one == group.status?.identity else { return .separate }
        let sameDirectory = self.legacy.directory.identity == self.group.directory.identity
        return sameDirectory && self.legacy.name == self.group.name ? .sameEntry : .twoNames
    }
}
