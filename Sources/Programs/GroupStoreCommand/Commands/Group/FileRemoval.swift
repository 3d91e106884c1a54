import CommandSupport
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Removes what was seen of a group, file by file, and nothing else.
///
/// A process that has one of the directories open can still use the files in it. So each file first loses its name: it
/// is moved aside under a lease. Whoever had found it by its name before holds it open or waits for the lease, and is
/// noticed; nobody finds it any more. Only then it is deleted. A killed removal leaves at most the files of one step
/// aside, under their own names and paths.
struct FileRemoval {
    private let directory: Directory
    private let aside: Directory
    private let closed: ClosedFiles
    /// The files with content that were deleted.
    private(set) var deleted: [FilePath] = []

    /// The number of files that are moved aside at a time, each with a descriptor.
    private static let step = 32
    static let asideName: FilePath.Component = "files"

    /// - Parameter aside: A directory on the same file system, of this process alone.
    init(_ directory: Directory, aside: Directory, closed: ClosedFiles) {
        self.directory = directory
        self.aside = aside
        self.closed = closed
    }

    private final class HeldFile {
        let entry: GroupInventory.Entry
        private let file: Descriptor?
        private var lease: FileLease?

        init(_ entry: GroupInventory.Entry, _ file: consuming Descriptor?, _ lease: consuming FileLease?) {
            self.entry = entry
            self.file = file
            self.lease = lease
        }

        /// Throws if somebody has opened or changed the file since it was seen.
        func check(at path: FilePath) throws {
            switch lease {
            case .some(let lease):
                if !lease.isIntact { throw ClosedFiles.open(path, FileHolder.of(entry.status.identity)) }
            case nil:
                let isOpenable = !entry.isRecord && entry.status.kind != .symbolicLink
                let holders = isOpenable ? FileHolder.of(entry.status.identity) : []
                guard holders.isEmpty else { throw ClosedFiles.open(path, holders) }
            }
            guard try file?.status(path: path).hasContent(of: entry.status) ?? true else {
                throw GroupRemoval.changed(path)
            }
        }

        // The lease must go before its descriptor.
        deinit { lease = nil }
    }

    /// Removes the entries from one of the group's directories. Throws `CommandFailure` and `SystemError`; the files of
    /// the step that failed have their names again, if those are free.
    mutating func remove(_ entries: [GroupInventory.Entry], from parent: Directory) throws {
        // A log without its database is lost, and a database without its log is damaged.
        let files = entries.filter { $0.status.kind != .directory }
        let ordered = files.filter { !$0.isSideFile } + files.filter(\.isSideFile)
        for start in stride(from: 0, to: ordered.count, by: Self.step) {
            try removeFiles(ordered[start..<min(start + Self.step, ordered.count)], from: parent)
        }
        for entry in entries where entry.status.kind == .directory {
            let inside = try parent.directory(entry.name)
            guard inside.identity == entry.status.identity else { throw changed(entry) }
            // Even its owner can't empty a directory without write permission.
            if entry.status.permissions & 0o300 != 0o300, entry.status.owner == geteuid() {
                try inside.setPermissions(entry.status.permissions | 0o700)
            }
            try remove(entry.children, from: inside)
            try removeEmpty(entry, from: parent)
        }
    }

    private func removeEmpty(_ entry: GroupInventory.Entry, from parent: Directory) throws {
        do throws(SystemError) {
            try parent.removeDirectory(entry.name)
        } catch {
            guard error.errno == .directoryNotEmpty || error.errno == .fileExists else { throw error }
            throw changed(entry)
        }
    }

    private mutating func removeFiles(_ entries: ArraySlice<GroupInventory.Entry>, from parent: Directory) throws {
        guard let first = entries.first else { return }
        let place = try asidePlace(of: first.path.removingLastComponent())
        var held: [HeldFile] = []
        do {
            for entry in entries {
                let file = try hold(entry, in: parent)
                try parent.rename(entry.name, to: entry.name, in: place, .refuse)
                held.append(file)
                // Another file may have got the name meanwhile.
                guard try place.status(entry.name)?.identity == entry.status.identity else { throw changed(entry) }
            }
            OpenerGracePeriod.standard.wait()
            for file in held { try file.check(at: path(file.entry)) }
            for file in held {
                try place.removeFile(file.entry.name)
                if file.entry.hasContent { deleted.append(file.entry.path) }
            }
        } catch {
            for file in held where (try? place.status(file.entry.name)) != nil {
                try? place.rename(file.entry.name, to: file.entry.name, in: parent, .refuse)
            }
            throw error
        }
    }

    private func hold(_ entry: GroupInventory.Entry, in parent: Directory) throws -> HeldFile {
        guard let status = try parent.status(entry.name), status.identity == entry.status.identity,
            status.kind == entry.status.kind
        else { throw changed(entry) }
        guard status.kind == .regular, !entry.isRecord else { return HeldFile(entry, nil, nil) }
        let file = try parent.open(entry.name, flags: O_RDONLY)
        let lease = try closed.lease(on: file, entry, at: path(entry))
        let now = try file.status(path: path(entry))
        guard now.identity == entry.status.identity, now.hasContent(of: entry.status) else { throw changed(entry) }
        return HeldFile(entry, file, lease)
    }

    /// Returns the place for the files of one directory, and makes it.
    private func asidePlace(of path: FilePath) throws(SystemError) -> Directory {
        var place = try aside.made(Self.asideName)
        for name in path.components { place = try place.made(name) }
        return place
    }

    private func path(_ entry: GroupInventory.Entry) -> FilePath { directory.path.pushing(entry.path) }

    private func changed(_ entry: GroupInventory.Entry) -> CommandFailure { GroupRemoval.changed(path(entry)) }
}

extension GroupInventory.Entry {
    fileprivate var isSideFile: Bool {
        ["-wal", "-shm", "-journal"].contains { name.bytes.suffix($0.utf8.count).elementsEqual($0.utf8) }
    }
}

extension Directory {
    /// Returns the directory `name`, which only this user may use, and makes it if it is missing.
    func made(_ name: FilePath.Component) throws(SystemError) -> Directory {
        if try status(name) == nil { try makeDirectory(name, mode: 0o700) }
        return try directory(name)
    }

    /// Gives everything in the directory its name in another one, where the directories above it still are, and removes
    /// the directories that become empty. Returns the first error: a name may be taken there.
    func moveFiles(backTo other: Directory) throws(SystemError) -> SystemError? {
        var failure: SystemError?
        for name in try names() {
            do throws(SystemError) {
                guard try status(name)?.kind == .directory, try other.status(name) != nil else {
                    try rename(name, to: name, in: other, .refuse)
                    continue
                }
                if let inner = try directory(name).moveFiles(backTo: other.directory(name)) { throw inner }
                try removeDirectory(name)
            } catch {
                failure = failure ?? error
            }
        }
        return failure
    }
}
