import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// The directories that are wanted, whether they are there, and the kernel's watches by which they are followed.
///
/// Each directory and each symbolic link on the way to one is watched for its own move and removal, and for nothing that
/// happens inside it: work in a busy parent wakes nobody. A directory whose next name is missing is watched for that name
/// to come (`AwaitedNames`). Two paths may lead through one directory, which the kernel watches once.
final class WatchedPaths {
    /// One of the kernel's watches, and what it is there for.
    struct KernelWatch {
        let identity: FileIdentity
        let isDirectory: Bool
        /// What the kernel was asked for.
        var mask: UInt32 = 0
        /// The wanted directories that it is, with the kinds of events that each is to hear of.
        var targets: [FilePath: DirectoryEvent.Kinds] = [:]
        /// Those whose way leads through it.
        var passing: Set<FilePath> = []
        /// Those whose way can go on, or end, with a name in it.
        var awaiting: [FilePath: FilePath.Component] = [:]

        var isUnused: Bool { targets.isEmpty && passing.isEmpty && awaiting.isEmpty }

        var neededMask: UInt32 {
            guard isDirectory else { return WatchedPaths.ownEvents | UInt32(IN_ATTRIB) }
            let kinds = targets.values.reduce(0) { $0 | $1.rawValue }
            let names = targets.isEmpty && awaiting.isEmpty ? 0 : WatchedPaths.nameEvents
            return WatchedPaths.ownEvents | names | kinds
        }
    }

    /// One directory that was asked for.
    struct Wanted {
        var kinds: DirectoryEvent.Kinds
        /// The watch of the directory itself; nil while it isn't there.
        var target: CInt?
        /// All that are there for it.
        var watches: Set<CInt> = []
        /// A name in the last directory on the way, which can't be removed as long as it has one; nil when it is empty.
        var lastingName: FilePath.Component?
        var isEmpty: Bool { lastingName == nil && !isUnreadable }
        /// Whether there are names in that directory can't be told.
        var isUnreadable = false
    }

    let tools: InotifyTools
    var wanted: [FilePath: Wanted] = [:]
    var watches: [CInt: KernelWatch] = [:]
    /// The watches by what they are of.
    var numbers: [FileIdentity: CInt] = [:]
    /// The directories that are looked for again at some time, since no event is sure to tell of them.
    var revisits: [FilePath: ContinuousClock.Instant] = [:]
    var awaitedNames = AwaitedNames()
    /// Watches that may have to be ended.
    var unused: Set<CInt> = []
    private var names = RecentNames()
    /// Files that are watched by themselves.
    var files = WatchedFiles()
    /// Files that are watched for the time of a rest, and of which directory's watch they are.
    var restingFiles: [CInt: (directory: CInt, name: [UInt8])] = [:]
    var marks = FastPathIndex()

    init(_ tools: InotifyTools) { self.tools = tools }

    static let ownEvents = UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)
    static let nameEvents =
        UInt32(IN_CREATE) | UInt32(IN_DELETE) | UInt32(IN_MOVED_FROM) | UInt32(IN_MOVED_TO)

    func add(_ path: FilePath, _ kinds: DirectoryEvent.Kinds) throws(SystemError) -> [Notice] {
        let before = wanted[path]
        var entry = before ?? Wanted(kinds: kinds)
        entry.kinds.formUnion(kinds)
        entry.target = nil
        wanted[path] = entry
        do throws(SystemError) {
            return try place(path)
        } catch {
            remove(path)
            throw error
        }
    }

    func remove(_ path: FilePath) {
        withdraw(path)
        wanted[path] = nil
        revisits[path] = nil
        marks.forgetFound()
        endUnused()
    }

    func watch(_ name: FilePath.Component, in directory: FilePath, alone: Bool) throws {
        try files.watch(name, in: directory, isWanted: alone, tools)
    }

    /// By what a directory that is there is followed.
    func target(of path: FilePath) -> (watch: CInt, identity: FileIdentity, mask: UInt32)? {
        guard let number = wanted[path]?.target, let watch = watches[number] else { return nil }
        return (number, watch.identity, watch.mask)
    }

    // MARK: Events

    func notices(of event: InotifyTools.Event) -> [Notice] {
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { return placeAnew() + [.overflow] }
        if let notices = files.notices(of: event) { return notices }
        if let file = restingFiles[event.watch] {
            if event.mask & UInt32(IN_IGNORED) != 0 { restingFiles[event.watch] = nil }
            guard event.mask == UInt32(IN_MODIFY) else { return [] }
            return notices(of: InotifyTools.Event(watch: file.directory, mask: event.mask, name: file.name))
        }
        guard let watch = watches[event.watch] else { return [] }
        if event.mask & UInt32(IN_IGNORED) != 0 { return ended(event.watch) }
        guard let name = names.name(event.name) else {
            // A link that has lost its name has other attributes: how many names it has.
            let own = watch.isDirectory ? Self.ownEvents : Self.ownEvents | UInt32(IN_ATTRIB)
            let moved = event.mask & own == 0 ? [] : place(all: watch)
            guard watch.isDirectory, event.mask & UInt32(IN_ATTRIB) != 0 else { return moved }
            let changed = watch.targets.filter { $0.value.contains(.attributes) }.keys
            return moved + changed.sorted { $0.string < $1.string }.map { .directoryChanged($0) }
        }
        var found: [Notice] = []
        for (path, asked) in watch.targets {
            let kinds = asked.intersection(DirectoryEvent.Kinds(rawValue: event.mask))
            if !kinds.isEmpty { found.append(.event(DirectoryEvent(directory: path, name: name, kinds: kinds))) }
        }
        note(event, found)
        if event.mask & Self.nameEvents != 0 { found += namesChanged(event, name, watch) }
        return found
    }

    private func note(_ event: InotifyTools.Event, _ notices: [Notice]) {
        guard event.mask == UInt32(IN_MODIFY), notices.count == 1, case .event(let found)? = notices.first,
            let number = marks[found.name, found.directory]
        else { return }
        marks.note(event, number)
    }

    /// The kernel ended the watch: its directory or link is gone, or its file system.
    private func ended(_ number: CInt) -> [Notice] {
        guard let watch = watches.removeValue(forKey: number) else { return [] }
        if numbers[watch.identity] == number { numbers[watch.identity] = nil }
        let gone = watch.targets.keys.filter { wanted[$0]?.target == number }
        for path in gone { wanted[path]?.target = nil }
        return gone.sorted { $0.string < $1.string }.map { .directoryVanished($0) } + place(all: watch)
    }
}
