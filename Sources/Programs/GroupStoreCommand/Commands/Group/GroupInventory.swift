import CommandSupport
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// Everything in a group's directory at one moment, all the way down.
struct GroupInventory {
    /// A file or directory that was seen. Symbolic links are not followed.
    struct Entry {
        let name: FilePath.Component
        /// The path relative to the group's directory.
        let path: FilePath
        let status: FileStatus
        /// True for the package's own lock files and records, which describe stores and hold none.
        let isRecord: Bool
        /// What a directory holds, in the order of the names.
        let children: [Entry]

        /// True if deleting it loses something. What a symbolic link leads to stays.
        var hasContent: Bool {
            switch status.kind {
            case .regular: status.size > 0 && !isRecord
            case .other: true
            case .symbolicLink: false
            case .directory: children.contains(where: \.hasContent)
            }
        }

        var contentSize: Int64 {
            children.reduce(status.kind == .regular && !isRecord ? status.size : 0) { $0 + $1.contentSize }
        }

        /// The entry and everything in it.
        var all: [Entry] { [self] + children.flatMap(\.all) }

        /// True if it is the same file with the same content as far as its status tells.
        func isUnchanged(since other: Entry) -> Bool {
            status.identity == other.status.identity && status.kind == other.status.kind
                && (status.kind != .regular || status.hasContent(of: other.status))
        }
    }

    /// A file or directory with content, which is deleted only if somebody asks for that.
    struct Item: CustomStringConvertible {
        let path: FilePath
        let bytes: Int64
        var description: String { "\(PrintablePath(path))  \(ByteCount(bytes))" }
    }

    let entries: [Entry]

    /// Looks at the directory. Changes nothing. Throws `CommandFailure` for a mount point, and `SystemError`.
    init(_ directory: Directory) throws {
        entries = try Self.entries(of: directory, at: FilePath(), excluding: RemovalRecord.directoryName)
    }

    private static func entries(
        of directory: Directory, at path: FilePath, excluding excluded: FilePath.Component? = nil
    ) throws -> [Entry] {
        let names = try directory.names().sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
        return try names.filter { $0 != excluded }.compactMap { name in
            guard let status = try directory.status(name) else { return nil }
            guard try !directory.isMountPoint(name) else {
                throw CommandFailure(
                    .conflict, code: "mount_point",
                    "\(PrintablePath(directory.path.appending(name))) is a mount point",
                    remedy: "unmount it, then run this again")
            }
            let place = path.appending(name)
            let children = status.kind == .directory ? try entries(of: directory.directory(name), at: place) : []
            return Entry(
                name: name, path: place, status: status, isRecord: try isRecord(place, status, in: directory),
                children: children)
        }
    }

    /// Returns true for a lock file or record of the package. Anybody may have put another file in their place, so its
    /// first byte counts too: records are JSON, and the group's lock holds a process's number.
    private static func isRecord(_ path: FilePath, _ status: FileStatus, in directory: Directory) throws -> Bool {
        let names = path.components.map(\.string)
        guard status.kind == .regular, names.count > 1, names[0] == GroupContainer.bookkeepingName.string,
            status.size <= 1 << 20, let name = path.lastComponent
        else { return false }
        let isLock = names.count == 2 && names[1] == "lock"
        let isOwn =
            names.count == 2
            ? isLock || names[1] == GroupContainer.writeAheadName.string : ["receipts", "claims"].contains(names[1])
        guard isOwn else { return false }
        guard status.size > 0, let first = try directory.open(name, flags: O_RDONLY).read(count: 1, at: 0).first else {
            return true
        }
        return isLock ? (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first) : first == UInt8(ascii: "{")
    }

    var all: [Entry] { entries.flatMap(\.all) }

    var hasContent: Bool { entries.contains(where: \.hasContent) }

    /// What has content, by its name in the directory or in `.groupstore`, in the order of the paths.
    func items(at path: FilePath) -> [Item] {
        entries.flatMap { $0.name == GroupContainer.bookkeepingName ? $0.children : [$0] }.filter(\.hasContent)
            .map { Item(path: path.pushing($0.path), bytes: $0.contentSize) }
            .sorted { $0.path.bytes.lexicographicallyPrecedes($1.path.bytes) }
    }

    /// Returns the first entry that wasn't there before or has changed since, or nil if there is none. The package's
    /// own records change while they are read.
    func change(since earlier: GroupInventory) -> Entry? {
        let known = Dictionary(earlier.all.map { ($0.path, $0) }) { first, _ in first }
        return all.first { entry in
            guard !entry.isRecord else { return false }
            guard let other = known[entry.path] else { return !Self.isBookkeeping(entry) }
            return !entry.isUnchanged(since: other)
        }
    }

    /// True for a directory that the package makes for its records.
    private static func isBookkeeping(_ entry: Entry) -> Bool {
        entry.status.kind == .directory && entry.path.components.first == GroupContainer.bookkeepingName
            && !entry.hasContent
    }
}

extension FileStatus {
    /// True if both are of the same content, as far as size and time of the last write tell.
    func hasContent(of other: FileStatus) -> Bool { size == other.size && modified == other.modified }
}
