import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Which directories are wanted, which are there, and by which of the kernel's watches they are followed.
///
/// A directory that isn't there is waited for at its nearest parent that is; one that is there is also followed at its
/// parent, so that another directory or link under its name is noticed. Two names may lead to one directory, which the
/// kernel watches once.
final class WatchedPlaces {
    private struct Watch {
        let identity: FileIdentity
        var mask: UInt32
    }

    /// One directory that was asked for.
    private struct Wanted {
        var kinds: DirectoryEvent.Kinds
        /// The watch of the directory itself; nil while it isn't there.
        var target: CInt?
        /// The watch of the directory where its coming or its replacement will be seen.
        var parent: CInt?
    }

    let tools: InotifyTools
    private var wanted: [FilePath: Wanted] = [:]
    private var watches: [CInt: Watch] = [:]
    private var names = RecentNames()
    /// Files that are watched by themselves.
    private(set) var files = WatchedFiles()
    /// Files that are watched for the time of a rest, and of which directory's watch they are.
    var restingFiles: [CInt: (directory: CInt, name: [UInt8])] = [:]
    var marks = WriteMarks()

    init(_ tools: InotifyTools) { self.tools = tools }

    /// What tells that a directory is another one, or no longer one.
    private static let structure =
        UInt32(IN_CREATE) | UInt32(IN_DELETE) | UInt32(IN_MOVED_FROM) | UInt32(IN_MOVED_TO) | UInt32(IN_DELETE_SELF)
        | UInt32(IN_MOVE_SELF)

    func add(_ path: FilePath, _ kinds: DirectoryEvent.Kinds) throws -> [Notice] {
        var entry = wanted[path] ?? Wanted(kinds: kinds)
        entry.kinds.formUnion(kinds)
        entry.target = nil
        wanted[path] = entry
        return try place(path)
    }

    func remove(_ path: FilePath) {
        wanted[path] = nil
        marks.forgetFound()
        releaseUnused()
    }

    func watch(_ name: FilePath.Component, in directory: FilePath, alone: Bool) throws {
        try files.watch(name, in: directory, isWanted: alone, tools)
    }

    /// By what a directory that is there is followed.
    func target(of path: FilePath) -> (watch: CInt, identity: FileIdentity, mask: UInt32)? {
        guard let number = wanted[path]?.target, let watch = watches[number] else { return nil }
        return (number, watch.identity, watch.mask)
    }

    // MARK: Placing

    /// Finds the directory, or where to wait for it, and tells when that changed. Watches first, then looks again,
    /// so that nothing falls between.
    private func place(_ path: FilePath) throws -> [Notice] {
        guard let before = wanted[path]?.target else { return try placeAnew(path, was: nil) }
        let identity = watches[before]?.identity
        if let identity, FileStatus(following: path)?.identity == identity { return [] }
        return [.directoryVanished(path)] + (try placeAnew(path, was: before))
    }

    private func placeAnew(_ path: FilePath, was: CInt?) throws -> [Notice] {
        wanted[path]?.target = nil
        marks.forgetFound()
        defer { releaseUnused() }
        // Each round but the last found that somebody changed the path meanwhile.
        for _ in 0..<64 {
            if let target = try watchIfThere(path, mask: mask(of: path)) {
                wanted[path]?.target = target
                wanted[path]?.parent = try watchIfThere(path.removingLastComponent(), mask: Self.structure)
                if isThere(path, target) { return [.directoryAppeared(path)] }
                continue
            }
            let parent = nearestParent(of: path)
            guard let waiting = try watchIfThere(parent, mask: Self.structure) else { continue }
            wanted[path]?.parent = waiting
            // It, or a nearer parent, may have come before the watch was set.
            if nearestParent(of: path) == parent, FileStatus(following: path)?.kind != .directory { return [] }
        }
        throw SystemError("inotify_add_watch", .permissionDenied, path: path)
    }

    private func isThere(_ path: FilePath, _ watch: CInt) -> Bool {
        FileStatus(following: path)?.identity == watches[watch]?.identity
    }

    private func nearestParent(of path: FilePath) -> FilePath {
        var parent = path
        while parent.components.count > 0 {
            parent = parent.removingLastComponent()
            if FileStatus(following: parent)?.kind == .directory { return parent }
        }
        return "/"
    }

    private func mask(of path: FilePath) -> UInt32 {
        Self.structure | (wanted[path]?.kinds.rawValue ?? 0)
    }

    /// Nil when there is no directory by that name, or it can't be reached.
    private func watchIfThere(_ path: FilePath, mask: UInt32) throws -> CInt? {
        do throws(SystemError) {
            let directory = try Descriptor(opening: path, flags: gs_o_path | O_DIRECTORY)
            let identity = try directory.status().identity
            let known = watches.first { $0.value.identity == identity }
            let whole = mask | (known?.value.mask ?? 0)
            if let known, known.value.mask == whole { return known.key }
            let watch = try tools.watch(directory, mask: whole, path: path)
            watches[watch] = Watch(identity: identity, mask: whole)
            return watch
        } catch {
            switch error.errno {
            case .noSuchFileOrDirectory, .notDirectory, .permissionDenied, .tooManySymbolicLinkLevels: return nil
            default: throw error
            }
        }
    }

    private func releaseUnused() {
        let used = Set(wanted.values.flatMap { [$0.target, $0.parent].compactMap { $0 } })
        for watch in watches.keys where !used.contains(watch) {
            watches[watch] = nil
            tools.remove(watch)
        }
    }

    // MARK: Events

    func notices(of event: InotifyTools.Event) throws -> [Notice] {
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { return try placeAll() + [.overflow] }
        if let notices = files.notices(of: event) { return notices }
        if let file = restingFiles[event.watch] {
            if event.mask & UInt32(IN_IGNORED) != 0 { restingFiles[event.watch] = nil }
            guard event.mask == UInt32(IN_MODIFY) else { return [] }
            return try notices(of: InotifyTools.Event(watch: file.directory, mask: event.mask, name: file.name))
        }
        guard watches[event.watch] != nil else { return [] }
        if event.mask & UInt32(IN_IGNORED) != 0 { return try ended(event.watch) }
        var notices: [Notice] = []
        if let name = names.name(event.name) {
            for (path, entry) in wanted where entry.target == event.watch {
                let kinds = entry.kinds.intersection(DirectoryEvent.Kinds(rawValue: event.mask))
                if !kinds.isEmpty { notices.append(.event(DirectoryEvent(directory: path, name: name, kinds: kinds))) }
            }
            note(event, notices)
        }
        if event.mask & Self.structure != 0 { notices += try structureChanged(event) }
        return notices
    }

    private func note(_ event: InotifyTools.Event, _ notices: [Notice]) {
        guard event.mask == UInt32(IN_MODIFY), notices.count == 1, case .event(let found)? = notices.first,
            let number = marks[found.name, found.directory]
        else { return }
        marks.note(event, number)
    }

    /// A name came or went where a wanted directory may be, or a watched directory itself went.
    private func structureChanged(_ event: InotifyTools.Event) throws -> [Notice] {
        let isOfItself = event.name.isEmpty
        let concerned = wanted.filter { _, entry in
            entry.parent == event.watch || (isOfItself && entry.target == event.watch)
        }
        return try concerned.keys.sorted { $0.string < $1.string }.flatMap { try place($0) }
    }

    /// The kernel ended the watch: its directory is gone, or its file system.
    private func ended(_ watch: CInt) throws -> [Notice] {
        watches[watch] = nil
        var notices: [Notice] = []
        for path in wanted.keys.sorted(by: { $0.string < $1.string }) {
            if wanted[path]?.target == watch {
                notices.append(.directoryVanished(path))
                notices += try placeAnew(path, was: nil)
            } else if wanted[path]?.parent == watch {
                wanted[path]?.parent = nil
                notices += wanted[path]?.target == nil ? try placeAnew(path, was: nil) : try place(path)
            }
        }
        return notices
    }

    /// Looks whether the names lead to other directories than they did.
    func placeAll() throws -> [Notice] {
        try wanted.keys.sorted { $0.string < $1.string }.flatMap { try place($0) }
    }
}
