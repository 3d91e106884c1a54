import DirectoryWatching
import GroupContainers
import LinuxSystem
import Logging
import Synchronization
import SystemPackage

extension Configuration {
    /// Adds the group containers in `containers` that aren't served yet. Returns true if there were any.
    ///
    /// A group whose directory is gone stays, like a configured one: it may come back, and its subscribers are told.
    @discardableResult
    package mutating func discoverGroups() -> Bool {
        guard let containers, let names = try? Directory(containers).names() else { return false }
        let known = Set(groups.map(\.identifier))
        let found = names.compactMap { $0.utf8.flatMap(GroupIdentifier.init) }.filter { !known.contains($0) }
            .sorted { $0.rawValue < $1.rawValue }
        guard !found.isEmpty else { return false }
        let directories = Set(groups.compactMap { FileStatus(following: $0.directory)?.identity })
        let count = groups.count
        for identifier in found {
            let directory = containers.appending(identifier.rawValue)
            // A second name of a served group's directory would be a second group for the same stores.
            guard let status = FileStatus(following: directory), status.kind == .directory,
                !directories.contains(status.identity), (try? Directory(directory)) != nil
            else { continue }
            groups.append(Group(identifier: identifier, directory: directory, stores: [], isDiscovered: true))
        }
        return groups.count > count
    }

    /// True if there is a container of this group that isn't served yet.
    func hasUnservedContainer(of group: String) -> Bool {
        guard let containers, self.group(group) == nil, let identifier = GroupIdentifier(group) else { return false }
        return FileStatus(following: containers.appending(identifier.rawValue))?.kind == .directory
    }
}

/// Watches for new group containers, while the configuration asks for it.
///
/// Without a watch they are found when somebody asks for them.
final class ContainersWatcher {
    private let log: Logger
    private let onChange: @Sendable () -> Void
    private var current: (directory: FilePath, watch: ContainersWatch)?

    /// - Parameter onChange: Called on another thread when there may be a new container.
    init(log: Logger, onChange: @escaping @Sendable () -> Void) {
        self.log = log
        self.onChange = onChange
    }

    /// Watches this directory and no other; none if it is nil.
    func watch(_ directory: FilePath?) {
        guard directory != current?.directory else { return }
        current?.watch.stop()
        current = nil
        guard let directory else { return }
        do {
            current = (directory, try ContainersWatch(directory, log: log, onChange: onChange))
        } catch {
            log.warning("can't watch \(PrintablePath(directory)) for new groups: \(error)")
        }
    }
}

/// Watches a directory for new names, on a thread of its own.
///
/// The watch is for new names only. The change feed watches directories for opened files too, and SQLite opens a
/// store's directory for each commit in rollback mode: that would wake the agent.
private final class ContainersWatch: Sendable {
    private let source: Shared
    private let isStopping = StopFlag()
    private let thread: SystemThread

    /// @unchecked: `InotifySource` belongs to one thread, except for `wake`.
    private final class Shared: @unchecked Sendable {
        // Used by the watching thread alone once it runs; `wake` may be called on any thread.
        let source: InotifySource

        init() throws { source = try InotifySource() }
    }

    /// - Parameter onChange: Called on another thread when a name has come, or the directory itself.
    init(_ directory: FilePath, log: Logger, onChange: @escaping @Sendable () -> Void) throws {
        let shared = try Shared()
        try shared.source.watch(directory, for: [.created, .movedIn])
        source = shared
        thread = try SystemThread(name: "gs-groups") { [isStopping] in
            do {
                while !isStopping.isSet {
                    if try shared.source.next(timeout: nil).contains(where: { $0 != .woken }) { onChange() }
                }
            } catch {
                log.warning("no longer watching \(PrintablePath(directory)) for new groups: \(error)")
            }
        }
    }

    func stop() {
        isStopping.set()
        source.source.wake()
        _ = thread.join(within: .seconds(5))
    }
}
