import Glibc
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// What lies at a legacy store's place at this moment. What can't be looked at counts as not there: whoever relocates it
/// finds out why.
struct LegacyFile {
    let path: FilePath
    let directory: FilePath
    let name: StoreName
    let group: FilePath
    /// The store's name in the group.
    let groupName: StoreName

    /// Nil when the path names no file.
    init?(_ path: FilePath, group: FilePath, groupName: StoreName) {
        guard let last = path.lastComponent, let name = StoreName(last) else { return nil }
        self.path = path
        self.name = name
        self.group = group
        self.groupName = groupName
        directory = path.removingLastComponent()
    }

    var signature: OutcomeSignature { OutcomeSignature(legacy: path, group: group, name: groupName) }

    private var database: FileStatus? {
        guard let directory = try? Directory(directory) else { return nil }
        return try? directory.status(name.database)
    }

    var isThere: Bool { database != nil }

    var isFile: Bool { database?.kind == .regular }

    /// How long the database has been as it is, and the names beside it; nil while it isn't there.
    var age: Duration? {
        guard let directory = try? Directory(directory), let status = try? directory.status(name.database),
            let directoryStatus = try? directory.status()
        else { return nil }
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return .nanoseconds(
            Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec) - max(status.changed, directoryStatus.changed))
    }

    /// Side files without a database, which may be on its way: half a store, if it doesn't come.
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

    /// A file of zero bytes, or a link that leads nowhere.
    var hasNothing: Bool { Relocation(request).hasNothing }

    /// An earlier attempt moved it, and something after that is still to be done.
    var isUnfinished: Bool { Relocation(request).isUnfinished }

    private var request: RelocationRequest {
        var request = RelocationRequest(source: path, group: group)
        request.name = groupName.database
        return request
    }

    /// The group's store under a second name, which the feed itself may have open: nobody's close is waited for.
    var isSameAsGroupStore: Bool {
        let identity = FileStatus(following: path)?.identity
        return identity != nil && identity == FileStatus(following: group.appending(groupName.database))?.identity
    }

    /// What `retire: symlink` left.
    var isLinkToGroup: Bool { database?.kind == .symbolicLink && isSameAsGroupStore }

    /// Who has it open, as far as can be seen.
    var holders: [FileHolder] { database.map { FileHolder.of($0.identity) } ?? [] }

    var groupStoreHolders: [FileHolder] {
        guard let status = FileStatus(following: group.appending(groupName.database)) else { return [] }
        return FileHolder.of(status.identity)
    }
}
