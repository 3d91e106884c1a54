import Glibc
import LinuxSystem
import SQLiteFormat
import StoreMigration
import StoreRelocation
import SystemPackage

/// The file at a legacy store's path at this moment. One that can't be inspected counts as absent: the relocation finds
/// out why.
struct LegacyFile {
    let path: FilePath
    let directory: FilePath
    let name: StoreName
    let group: FilePath
    /// The store's name in the group.
    let groupName: StoreName
    /// The files that a configured migration reads.
    let migrationFiles: [FilePath]

    /// Returns nil if the path names no file.
    init?(_ path: FilePath, group: FilePath, groupName: StoreName, migration: MigrationRequest? = nil) {
        guard let last = path.lastComponent, let name = StoreName.existing(last) else { return nil }
        self.path = path
        self.name = name
        self.group = group
        self.groupName = groupName
        directory = path.removingLastComponent()
        migrationFiles = migration.map { [$0.model] + $0.mergedModels + $0.mappings } ?? []
    }

    var signature: OutcomeSignature {
        OutcomeSignature(legacy: path, group: group, name: groupName, others: migrationFiles)
    }

    private var database: FileStatus? {
        guard let directory = try? Directory(directory) else { return nil }
        return try? directory.status(name.database)
    }

    var isThere: Bool { database != nil }

    var isFile: Bool { database?.kind == .regular }

    /// The time since the last change of the database or of the names beside it; nil if it is absent.
    var age: Duration? {
        guard let directory = try? Directory(directory), let status = try? directory.status(name.database),
            let directoryStatus = try? directory.status()
        else { return nil }
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return .nanoseconds(
            Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec) - max(status.changed, directoryStatus.changed))
    }

    /// True if there are side files without a database. The database may be on its way; if it doesn't come, this is
    /// half a store.
    var hasOrphans: Bool {
        do {
            let directory = try Directory(directory)
            guard try directory.status(name.database) == nil else { return false }
            let log = try directory.status(name.wal)?.size ?? 0
            return try log > 0 || RollbackJournal.isHot(name.journal, in: directory)
        } catch {
            return false
        }
    }

    /// True for a file of zero bytes, or a link that leads nowhere.
    var hasNothing: Bool { Relocation(request).hasNothingToDo }

    /// True if an earlier attempt moved the store, and later steps are still to be done.
    var isUnfinished: Bool { Relocation(request).isUnfinished }

    private var request: RelocationRequest {
        var request = RelocationRequest(source: path, group: group)
        request.name = groupName.database
        return request
    }

    /// True if it is the group's store under a second name. The feed itself may have it open, so no close is waited
    /// for.
    var isSameAsGroupStore: Bool {
        let identity = FileStatus(following: path)?.identity
        return identity != nil && identity == FileStatus(following: group.appending(groupName.database))?.identity
    }

    /// True if it is the link that `retire: symlink` left.
    var isLinkToGroup: Bool { database?.kind == .symbolicLink && isSameAsGroupStore }

    /// The processes that have it open, as far as can be seen.
    var holders: [FileHolder] { database.map { FileHolder.of($0.identity) } ?? [] }

    var groupStoreHolders: [FileHolder] {
        guard let status = FileStatus(following: group.appending(groupName.database)) else { return [] }
        return FileHolder.of(status.identity)
    }
}
