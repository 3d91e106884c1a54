import Glibc
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// What a directory contains, as far as a move has to know it.
final class AppSurvey {
    enum Depth {
        /// Names only: each file costs a third of a microsecond. For a rename.
        case names
        /// Each file's status, and the first bytes of each that may be a store. For a copy.
        case files
    }

    private(set) var contents = AppContents()
    /// The inodes of all regular files.
    private(set) var inodes: Set<UInt64> = []
    /// The inodes of the directory and all directories in it.
    private(set) var directories: Set<UInt64> = []
    /// Databases, relative to the root: those with a header of SQLite, if files are looked at.
    private(set) var stores: [FilePath] = []
    /// All regular files, likewise.
    private(set) var files: [FilePath] = []
    /// What is neither a regular file nor a directory, likewise: links, FIFOs, devices and sockets.
    private(set) var others: [FilePath] = []
    /// The owners of the stores, likewise.
    private(set) var owners: Set<uid_t> = []
    /// The space that the files take on the disk, in bytes, if they are looked at.
    private(set) var allocated: Int64 = 0
    /// Write-ahead logs and journals with content, each beside a file that may be its database. Likewise.
    private(set) var logs: Set<FilePath> = []
    /// Files with a write-ahead log or a journal beside them.
    private(set) var active: [FilePath] = []
    /// Why the directory can't be copied, by the first file of which that is known, if files are looked at.
    private var obstacle: RelocationFailure?

    private let root: Directory
    private let depth: Depth
    private let leave: [PathPattern]
    /// The files with several names, by their identity, with the names found.
    private var names: [FileIdentity: (paths: [FilePath], links: UInt64)] = [:]
    /// A header is looked for in at most this many files of a survey of names.
    private static let headerLimit = 10_000

    /// Looks at the whole tree. Throws `RelocationFailure` for a directory that can't be read, and `SystemError`.
    ///
    /// - Parameter leave: The files that a copy leaves out. If files are looked at, these don't count.
    init(_ root: Directory, _ depth: Depth, leaving leave: [PathPattern] = []) throws {
        self.root = root
        self.depth = depth
        self.leave = leave
        if depth == .files { contents.bytes = 0 }
        directories.insert(try root.status().identity.inode)
        try visit(root, FilePath())
        switch depth {
        case .files:
            contents.stores = stores
            contents.sharedFiles = names.values.filter { $0.paths.count < $0.links }.compactMap(\.paths.first)
                .sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
        case .names:
            // A rename needs no right to read the files.
            if contents.files <= Self.headerLimit { (try? AppSurvey(root, .files))?.give(to: self) }
        }
    }

    private func give(to other: AppSurvey) {
        contents.linksOutside = other.contents.linksOutside
        other.contents = contents
        other.stores = stores
        other.owners = owners
    }

    private func visit(_ directory: Directory, _ path: FilePath) throws {
        contents.directories += 1
        if depth == .files { noteOwners(try directory.status(), at: directory.path) }
        var children: [FilePath.Component] = []
        var files: [FilePath.Component] = []
        try directory.forEachEntry { name, kind, inode in
            var kind = kind
            if kind == nil, let component = FilePath.Component(bytes: name) {
                kind = try directory.status(component)?.kind
            }
            if kind == .directory {
                directories.insert(inode)
                if let component = FilePath.Component(bytes: name) { children.append(component) }
                return
            }
            contents.files += 1
            if kind == .regular { inodes.insert(inode) }
            if kind == .regular, let base = Self.database(besideLog: name) {
                if try directory.status(base)?.kind == .regular { active.append(path.appending(base)) }
            }
            if kind == .symbolicLink, let component = FilePath.Component(bytes: name) {
                let link = path.appending(component)
                if !isLeft(link) { try lookAtLink(component, in: directory, link) }
            }
            if depth == .files, let component = FilePath.Component(bytes: name) { files.append(component) }
        }
        for name in files { try look(name, in: directory, path.appending(name)) }
        for name in children { try visit(open(name, in: directory), path.appending(name)) }
    }

    private func open(_ name: FilePath.Component, in directory: Directory) throws -> Directory {
        do throws(SystemError) {
            return try directory.directory(name)
        } catch {
            guard error.isPermission else { throw error }
            throw Self.unreadable(directory.path.appending(name), "rx")
        }
    }

    /// Returns the name of the database whose write-ahead log or journal this is.
    private static func database(besideLog name: UnsafeBufferPointer<UInt8>) -> FilePath.Component? {
        for suffix in ["-wal", "-journal"] where name.count > suffix.utf8.count {
            guard name.suffix(suffix.utf8.count).elementsEqual(suffix.utf8) else { continue }
            return FilePath.Component(bytes: name.dropLast(suffix.utf8.count))
        }
        return nil
    }

    // MARK: - A file

    private func look(_ name: FilePath.Component, in directory: Directory, _ path: FilePath) throws {
        guard let status = try directory.status(name) else { return }
        let full = directory.path.appending(name)
        noteOwners(status, at: full)
        if [.symbolicLink, .other].contains(status.kind) {
            others.append(path)
            guard !isLeft(path) else { return contents.files -= 1 }
        }
        switch status.kind {
        case .regular: try lookAtContent(name, in: directory, path, status)
        case .directory, .symbolicLink: break
        case .other:
            let special = try directory.specialFile(name)
            if special == .socket { contents.sockets.append(path) }
            if case .device? = special, geteuid() != 0 {
                note(
                    .app(
                        .notPermitted, "device", "\(PrintablePath(full)) is a device, which only root can make",
                        "run this as root"))
            }
        }
    }

    private func isLeft(_ path: FilePath) -> Bool { leave.contains { $0.matches(path) } }

    private func note(_ failure: RelocationFailure) { obstacle = obstacle ?? failure }

    /// Notes a file or directory that a copy would give to another user, or to another group: whom it lets in would
    /// change. The group of a symbolic link lets nobody in.
    private func noteOwners(_ status: FileStatus, at path: FilePath) {
        guard geteuid() != 0, obstacle == nil else { return }
        if status.owner != geteuid() {
            note(
                .app(
                    .notPermitted, "owner",
                    "\(PrintablePath(path)) belongs to user \(status.owner), and a copy would not",
                    "run this as root"))
        } else if status.kind != .symbolicLink, !Directory.isOwnGroup(status.group) {
            note(
                .app(
                    .notPermitted, "owner",
                    "\(PrintablePath(path)) belongs to group \(status.group), which is none of this user's, and a copy "
                        + "would not",
                    "run this as root, or give it to your own group: chgrp \(getegid()) \(path.shellWord)"))
        }
    }

    private func lookAtLink(_ name: FilePath.Component, in directory: Directory, _ path: FilePath) throws {
        let target: FilePath
        do throws(SystemError) {
            target = try directory.linkTarget(name)
        } catch {
            // Removed meanwhile.
            guard [.noSuchFileOrDirectory, .invalidArgument].contains(error.errno) else { throw error }
            return
        }
        if target.isAbsolute {
            if target.starts(with: root.path) { contents.linksInside.append(path) }
            return
        }
        var depth = path.components.count - 1
        for component in target.components {
            depth += component.kind == .parentDirectory ? -1 : component.kind == .regular ? 1 : 0
            guard depth < 0 else { continue }
            let normal = path.removingLastComponent().pushing(target).lexicallyNormalized()
            // The first component leads to the directory's parent.
            let beside = FilePath(root: nil, normal.components.dropFirst())
            contents.linksOutside.append(OutwardLink(path: path, target: target, beside: beside))
            return
        }
    }

    private func lookAtContent(
        _ name: FilePath.Component, in directory: Directory, _ path: FilePath, _ status: FileStatus
    ) throws {
        files.append(path)
        if isLeft(path) {
            contents.files -= 1
        } else {
            contents.bytes = (contents.bytes ?? 0) + status.size
            allocated += min(status.allocated, status.size)
        }
        if status.size > 0, Self.hasDatabase(name, in: directory) { logs.insert(path) }
        if status.links > 1 { names[status.identity, default: ([], status.links)].paths.append(path) }
        do throws(SystemError) {
            let start = try Self.start(of: name, in: directory)
            if DatabaseHeader(start) != nil {
                stores.append(path)
                owners.insert(status.owner)
            }
        } catch {
            // A rename needs no right to read it.
            if error.isPermission { return note(Self.unreadable(directory.path.appending(name), "r")) }
            // Removed meanwhile.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
        }
    }

    /// True for a file with SQLite's header, and for a log or journal with content beside another file.
    static func isStore(_ name: FilePath.Component, in directory: Directory) throws -> Bool {
        if hasDatabase(name, in: directory) { return try directory.status(name)?.size != 0 }
        return DatabaseHeader(try start(of: name, in: directory)) != nil
    }

    /// True for a symbolic link that leads to a store, in the directory or elsewhere.
    func isLinkToStore(_ link: FilePath) -> Bool {
        let target = root.path.pushing(link).resolvingLinks
        guard FileStatus(following: target)?.kind == .regular, let name = target.lastComponent,
            let parent = try? Directory(target.removingLastComponent())
        else { return false }
        return (try? Self.isStore(name, in: parent)) ?? false
    }

    /// True for the name of a log or journal beside a file that may be its database.
    private static func hasDatabase(_ name: FilePath.Component, in directory: Directory) -> Bool {
        guard let base = Array(name.bytes).withUnsafeBufferPointer({ database(besideLog: $0) }) else { return false }
        return (try? directory.status(base))?.kind == .regular
    }

    private static func start(
        of name: FilePath.Component, in directory: Directory
    ) throws(SystemError) -> [UInt8] {
        let file = try directory.open(name, flags: O_RDONLY)
        return try file.read(count: DatabaseHeader.length, at: 0, path: directory.path.appending(name))
    }

    /// Throws `RelocationFailure` for what can't be copied: a file that this process can't read, or whose owner or
    /// group it can't keep, and a store with another name. Outside of the directory that would be a second store, and
    /// a program that uses that name would write to the old one; inside, each name has a log of its own.
    func checkCopy() throws {
        if let obstacle { throw obstacle }
        let twins = names.values.filter { $0.paths.count > 1 }
        if let paths = twins.map(\.paths).first(where: { !Set(stores).isDisjoint(with: $0) }) {
            throw RelocationFailure.app(
                .badData, "two_names",
                "the store \(PrintablePath(root.path.pushing(paths[0]))) has another name in the directory: "
                    + "\(PrintablePath(paths[1]))", "remove one of the two names; the data is there once")
        }
        guard let store = contents.sharedFiles.first(where: { Set(stores).contains($0) }) else { return }
        let path = root.path.pushing(store)
        throw RelocationFailure.app(
            .unusablePlace, "hard_linked",
            "the store \(PrintablePath(path)) has another name outside of the directory, which would keep the old content",
            "remove that name first, which this prints: "
                + "find \"$(stat -c %m \(path.shellWord))\" -xdev -samefile \(path.shellWord)")
    }

    /// Throws `RelocationFailure` for a log or journal that is a relative link to outside of the directory: at the new
    /// place SQLite would find none there, or another store's.
    func checkLogs() throws {
        let link = try contents.linksOutside.first { link in
            guard let database = link.path.databaseOfSideFile, let name = database.lastComponent else { return false }
            return try root.descendant(database.removingLastComponent()).status(name)?.kind == .regular
        }
        guard let link else { return }
        let (path, target) = (root.path.pushing(link.path), PrintablePath(link.target))
        throw RelocationFailure.app(
            .badData, "log_outside",
            "\(PrintablePath(path)) is a link to \(target), outside of the directory: a store's log would stay behind",
            "put the file there in the link's place, after its program has ended: mv "
                + "\(root.path.removingLastComponent().pushing(link.beside).shellWord) \(path.shellWord)")
    }

    private static func unreadable(_ path: FilePath, _ mode: String) -> RelocationFailure {
        .app(
            .notPermitted, "not_permitted", "\(PrintablePath(path)) can't be read",
            "let its owner read it: chmod u+\(mode) \(path.shellWord)")
    }
}
