import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The files that an outcome depended on: while they are unchanged, the same attempt would end in the same way.
///
/// Access times and the wal-index are left out, since inspecting a store changes them; anything but a file in the
/// wal-index's place is not.
struct OutcomeSignature: Equatable {
    private struct File: Equatable {
        let identity: FileIdentity
        let kind: FileStatus.Kind
        let permissions: mode_t
        let owner: uid_t
        let size: Int64
        let modified: Int64
        let changed: Int64

        init(_ status: FileStatus) {
            identity = status.identity
            kind = status.kind
            permissions = status.permissions
            owner = status.owner
            // A directory's times also change with unrelated files beside a store.
            let isDirectory = status.kind == .directory
            size = isDirectory ? 0 : status.size
            modified = isDirectory ? 0 : status.modified
            changed = isDirectory ? 0 : status.changed
        }
    }

    private var files: [File?] = []

    /// The models that a migration reads have fewer files.
    private static let mostFiles = 512

    /// - Parameter others: Further files that an outcome depends on, such as a migration's models, and directories of
    ///   such files.
    init(legacy: FilePath, group: FilePath, name: StoreName, others: [FilePath] = []) {
        add(legacy.removingLastComponent(), legacy.lastComponent.flatMap(StoreName.existing))
        add(group, name)
        // The target of a link.
        files.append(FileStatus(following: legacy).map { File($0) })
        // Receipts identify rows that have moved before.
        let receipts = group.appending(GroupContainer.bookkeepingName).appending("receipts")
        files.append(FileStatus(following: receipts).map { File($0) })
        for path in others { addTree(path, depth: 4) }
    }

    private mutating func addTree(_ path: FilePath, depth: Int) {
        guard files.count < Self.mostFiles else { return }
        let status = FileStatus(following: path)
        files.append(status.map { File($0) })
        guard status?.kind == .directory, depth > 0, let names = try? Directory(path).names() else { return }
        for name in names.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            addTree(path.appending(name), depth: depth - 1)
        }
    }

    private mutating func add(_ path: FilePath, _ name: StoreName?) {
        guard let name, let directory = try? Directory(path), let status = try? directory.status() else {
            return files.append(nil)
        }
        files.append(File(status))
        for part in [name.database, name.wal, name.journal, name.support] {
            files.append((try? directory.status(part)).map { File($0) })
        }
        let index = (try? directory.status(name.sharedMemory)) ?? nil
        files.append(index.flatMap { $0.kind == .regular ? nil : File($0) })
        files.append((try? directory.status(GroupContainer.bookkeepingName)).map { File($0) })
    }
}
