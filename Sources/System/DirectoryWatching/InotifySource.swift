import Glibc
import LinuxSystem
import SystemPackage

/// An event source that reads the kernel's directory events.
package final class InotifySource: EventSource {
    private let instance: any InotifyInstance
    private let paths: WatchedPaths
    private var pending: [Notice] = []

    /// Creates a source that uses the system calls of inotify(7). Any number of them may exist. Throws `SystemError`.
    package convenience init() throws(SystemError) { self.init(try SystemInotify()) }

    /// Creates a source that uses `instance`, which nothing else uses.
    package init(_ instance: any InotifyInstance) {
        self.instance = instance
        paths = WatchedPaths(instance)
    }

    package func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws {
        pending += try paths.add(directory, kinds)
    }

    package func setKinds(_ kinds: DirectoryEvent.Kinds, of directory: FilePath) throws {
        try paths.setKinds(kinds, of: directory)
    }

    package func watchFile(_ name: FilePath.Component, in directory: FilePath, enabled: Bool) throws {
        try paths.watchFile(name, in: directory, enabled: enabled)
    }

    package func watchOpenFile(
        _ file: borrowing Descriptor, as name: FilePath.Component, in directory: FilePath
    ) throws {
        try paths.watchOpenFile(file, as: name, in: directory)
    }

    package func recheckPaths() { pending += paths.updateAll() }

    package func unwatch(_ directory: FilePath) { paths.remove(directory) }

    package func wake() { instance.wake() }

    package func setFastPath(_ name: FilePath.Component, in directory: FilePath, index: Int?) {
        paths.fastPath[name, directory] = index
    }

    package func withModifyEventsSuspended(except files: [FilePath: [FilePath.Component]], _ body: () throws -> Void)
        throws
    {
        var suspended: [SuspendedDirectory] = []
        // If a directory's watch can't be changed, it stays as it is.
        for (path, names) in files {
            guard let directory = paths.suspendedDirectory(at: path) else { continue }
            suspended.append(directory)
            try? paths.suspendModifyEvents(in: directory, except: names)
        }
        // Must resume all of them, whatever fails: a suspended directory would stay silent.
        defer { for directory in suspended { pending += paths.resumeModifyEvents(in: directory) } }
        try body()
    }

    package func next(
        timeout: Duration?, onReadable: (() -> Void)?, onFastPath: ((Int) -> Void)?
    ) throws -> [Notice] {
        var notices = pending
        pending = []
        if notices.isEmpty {
            let untilRecheck = paths.timeUntilRecheck
            let limit = [timeout, untilRecheck].compactMap { $0 }.min()
            switch try first(limit, onReadable, usesFastPath: onFastPath != nil) {
            case .event(let event)?: notices += paths.notices(of: event)
            case .fastPath(let index)?: onFastPath?(index)
            case .woken?: notices.append(.woken)
            case nil: break
            }
            if untilRecheck != nil { notices += paths.recheckDuePaths() }
        }
        var previous: QueuedEvent?
        for _ in 0..<Self.batch {
            guard let next = try instance.next(timeout: .zero, onReadable: nil, fastPath: nil) else { break }
            guard case .event(let event) = next else {
                notices.append(.woken)
                continue
            }
            // The kernel repeats an event only after the first was read: somebody writes continuously, and the writes
            // so far are to be handled. Any other event that comes twice has happened twice.
            if next == previous, event.mask == UInt32(IN_MODIFY) { break }
            notices += paths.notices(of: event)
            previous = next
        }
        return notices
    }

    /// The most events to handle at once.
    package static let batch = 256

    private func first(
        _ timeout: Duration?, _ onReadable: (() -> Void)?, usesFastPath: Bool
    ) throws(SystemError) -> QueuedEvent? {
        let fastPath: InotifyFastPath = { [paths] watch, mask, name in
            mask == UInt32(IN_MODIFY) ? paths.fastPath.index(watch: watch, name: name) : nil
        }
        return try instance.next(timeout: timeout, onReadable: onReadable, fastPath: usesFastPath ? fastPath : nil)
    }
}
