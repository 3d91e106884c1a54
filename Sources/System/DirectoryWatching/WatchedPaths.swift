import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// The requested directories, their state, and the kernel watches that follow them.
///
/// Each directory and symbolic link on the way to a requested one is watched only for its own move and removal, so that
/// work in a busy parent wakes nobody. A directory that lacks the next name on the way is watched for that name
/// (`AwaitedNames`). Two paths may lead through one directory, which the kernel watches once.
final class WatchedPaths {
    /// A kernel watch and its purposes.
    struct KernelWatch {
        let identity: FileIdentity
        let isDirectory: Bool
        /// The events requested from the kernel.
        var mask: UInt32 = 0
        /// The requested directories that the watch follows, with the kinds of events of each.
        var targets: [FilePath: DirectoryEvent.Kinds] = [:]
        /// The requested directories whose path leads through it.
        var passing: Set<FilePath> = []
        /// The requested directories whose path continues, or ends, with a name in it.
        var awaiting: [FilePath: FilePath.Component] = [:]

        var isUnused: Bool { targets.isEmpty && passing.isEmpty && awaiting.isEmpty }

        var neededMask: UInt32 {
            guard isDirectory else { return WatchedPaths.ownEvents | UInt32(IN_ATTRIB) }
            let kinds = targets.values.reduce(0) { $0 | $1.rawValue }
            let names = targets.isEmpty && awaiting.isEmpty ? 0 : WatchedPaths.nameEvents
            return WatchedPaths.ownEvents | names | kinds
        }
    }

    /// The state of one requested directory.
    struct RequestedDirectory {
        var kinds: DirectoryEvent.Kinds
        /// The watch of the directory itself, or nil while it doesn't exist.
        var target: CInt?
        /// All watches that follow the path.
        var watches: Set<CInt> = []
        /// A name in the last directory on the way, or nil if that is empty. A directory can't be removed while it has
        /// one.
        var stableName: FilePath.Component?
        var isEmpty: Bool { stableName == nil && !isUnreadable }
        /// True if that directory's names can't be read.
        var isUnreadable = false
    }

    let instance: any InotifyInstance
    var requested: [FilePath: RequestedDirectory] = [:]
    var watches: [CInt: KernelWatch] = [:]
    /// The watch ids by file.
    var watchIDs: [FileIdentity: CInt] = [:]
    /// The times to recheck directories whose change may raise no event.
    var recheckTimes: [FilePath: ContinuousClock.Instant] = [:]
    var awaitedNames = AwaitedNames()
    /// The names that are polled, since their directory is too busy to be watched for them.
    var polledNames: [FilePath: PolledName] = [:]
    /// The watches that may no longer be needed.
    var unusedWatches: Set<CInt> = []
    /// The name that has left a directory, while its event is handled: it may come and go again.
    var departedName: FilePath.Component?
    private var names = RecentNames()
    /// The files that are watched individually.
    var files = WatchedFiles()
    /// The files that are watched while modify events are suspended, with their directory's watch.
    var suspendedFiles: [CInt: (directory: CInt, name: [UInt8])] = [:]
    var fastPath = FastPathIndex()

    init(_ instance: any InotifyInstance) { self.instance = instance }

    static let ownEvents = UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)
    static let nameEvents =
        UInt32(IN_CREATE) | UInt32(IN_DELETE) | UInt32(IN_MOVED_FROM) | UInt32(IN_MOVED_TO)

    func add(_ path: FilePath, _ kinds: DirectoryEvent.Kinds) throws(SystemError) -> [Notice] {
        let before = requested[path]
        var entry = before ?? RequestedDirectory(kinds: kinds)
        entry.kinds.formUnion(kinds)
        entry.target = nil
        requested[path] = entry
        do throws(SystemError) {
            return try update(path)
        } catch {
            remove(path)
            throw error
        }
    }

    /// Changes the kinds of events of a requested directory. Its watch stays, and so do the events in the queue.
    func setKinds(_ kinds: DirectoryEvent.Kinds, of path: FilePath) throws(SystemError) {
        guard let number = requested[path]?.target, var watch = watches[number] else {
            requested[path]?.kinds = kinds
            return
        }
        watch.targets[path] = kinds
        if watch.neededMask != watch.mask {
            let directory = try Descriptor(opening: path, flags: gs_o_path | O_DIRECTORY)
            // Another directory has the path by now. Its event is about to say so, and the new kinds are for it.
            if try directory.status().identity == watch.identity {
                watch.mask = watch.neededMask
                try instance.change(number, of: directory, mask: watch.mask, path: path)
            }
        }
        requested[path]?.kinds = kinds
        watches[number] = watch
    }

    func remove(_ path: FilePath) {
        removeWatches(of: path)
        requested[path] = nil
        recheckTimes[path] = nil
        polledNames[path] = nil
        fastPath.invalidateCache()
        endUnused()
    }

    func watchFile(_ name: FilePath.Component, in directory: FilePath, enabled: Bool) throws {
        try files.watch(name, in: directory, enabled: enabled, instance)
    }

    func watchOpenFile(
        _ file: borrowing Descriptor, as name: FilePath.Component, in directory: FilePath
    ) throws(SystemError) {
        try files.watch(file, as: name, in: directory, instance)
    }

    /// Returns the watch that follows an existing directory.
    func target(of path: FilePath) -> (watch: CInt, identity: FileIdentity, mask: UInt32)? {
        guard let number = requested[path]?.target, let watch = watches[number] else { return nil }
        return (number, watch.identity, watch.mask)
    }

    // MARK: Events

    func notices(of event: InotifyEvent) -> [Notice] {
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { return restoreWatches() + [.overflow] }
        if let notices = files.notices(of: event) { return notices }
        if let file = suspendedFiles[event.watch] {
            if event.mask & UInt32(IN_IGNORED) != 0 { suspendedFiles[event.watch] = nil }
            guard event.mask == UInt32(IN_MODIFY) else { return [] }
            return notices(of: InotifyEvent(watch: file.directory, mask: event.mask, name: file.name))
        }
        guard let watch = watches[event.watch] else { return [] }
        if event.mask & UInt32(IN_IGNORED) != 0 { return handleEnded(event.watch) }
        guard let name = names.name(event.name) else {
            // A removed link reports changed attributes: its link count.
            let own = watch.isDirectory ? Self.ownEvents : Self.ownEvents | UInt32(IN_ATTRIB)
            let moved = event.mask & own == 0 ? [] : updatePaths(of: watch)
            guard watch.isDirectory, event.mask & UInt32(IN_ATTRIB) != 0 else { return moved }
            let changed = watch.targets.filter { $0.value.contains(.attributes) }.keys
            return moved + changed.sorted { $0.string < $1.string }.map { .directoryChanged($0) }
        }
        var found: [Notice] = []
        for (path, asked) in watch.targets {
            let kinds = asked.intersection(DirectoryEvent.Kinds(rawValue: event.mask))
            if !kinds.isEmpty { found.append(.event(DirectoryEvent(directory: path, name: name, kinds: kinds))) }
        }
        recordFastPath(event, found)
        if event.mask & Self.nameEvents != 0 { found += namesChanged(event, name: name, watch: watch) }
        return found
    }

    private func recordFastPath(_ event: InotifyEvent, _ notices: [Notice]) {
        guard event.mask == UInt32(IN_MODIFY), notices.count == 1, case .event(let found)? = notices.first,
            let index = fastPath[found.name, found.directory]
        else { return }
        fastPath.record(event, index: index)
    }

    /// Handles a watch that the kernel ended because its directory, link or file system is gone.
    private func handleEnded(_ number: CInt) -> [Notice] {
        guard let watch = watches.removeValue(forKey: number) else { return [] }
        if watchIDs[watch.identity] == number { watchIDs[watch.identity] = nil }
        let gone = watch.targets.keys.filter { requested[$0]?.target == number }
        for path in gone { requested[path]?.target = nil }
        return gone.sorted { $0.string < $1.string }.map { .directoryVanished($0) } + updatePaths(of: watch)
    }
}
