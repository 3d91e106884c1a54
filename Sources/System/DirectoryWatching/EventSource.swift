import Glibc
import LinuxSystem
import SystemPackage

/// An event in a watched directory.
package struct DirectoryEvent: Sendable, Equatable {
    /// The kinds of an event, with the bits of inotify(7).
    package struct Kinds: OptionSet, Hashable, Sendable {
        package let rawValue: UInt32
        package init(rawValue: UInt32) { self.rawValue = rawValue }

        package static let modified = Kinds(rawValue: UInt32(IN_MODIFY))
        package static let opened = Kinds(rawValue: UInt32(IN_OPEN))
        package static let closedAfterWriting = Kinds(rawValue: UInt32(IN_CLOSE_WRITE))
        package static let closedAfterReading = Kinds(rawValue: UInt32(IN_CLOSE_NOWRITE))
        package static let created = Kinds(rawValue: UInt32(IN_CREATE))
        package static let deleted = Kinds(rawValue: UInt32(IN_DELETE))
        package static let movedIn = Kinds(rawValue: UInt32(IN_MOVED_TO))
        package static let movedOut = Kinds(rawValue: UInt32(IN_MOVED_FROM))
        package static let attributes = Kinds(rawValue: UInt32(IN_ATTRIB))

        /// A name that came into the directory.
        package static let arrived: Kinds = [.created, .movedIn]
        /// A name that left the directory.
        package static let departed: Kinds = [.deleted, .movedOut]
    }

    /// The directory's path as passed to `watch`.
    package let directory: FilePath
    package let name: FilePath.Component
    package let kinds: Kinds

    package init(directory: FilePath, name: FilePath.Component, kinds: Kinds) {
        self.directory = directory
        self.name = name
        self.kinds = kinds
    }
}

/// A result of `EventSource.next`.
package enum Notice: Sendable, Equatable {
    case event(DirectoryEvent)
    /// The directory, named as passed to `watch`, exists (again) and is watched from now on. Inspect everything in it.
    case directoryAppeared(FilePath)
    /// The directory's own attributes changed, perhaps its permissions. Inspect everything in it. Reported only if
    /// `attributes` were requested.
    case directoryChanged(FilePath)
    /// The directory was deleted, moved away or unmounted. The source waits for it to reappear.
    case directoryVanished(FilePath)
    /// The directory can't be followed any more, wherever it is, and is no longer watched.
    case unwatchable(FilePath, SystemError)
    /// The kernel's queue overflowed: anything may have happened in any directory. All directory watches are restored.
    /// Files are no longer watched individually.
    case overflow
    /// `wake()` was called.
    case woken
}

/// A source of notices: inotify(7) in the agent, memory in tests. All methods but `wake()` belong to one thread.
package protocol EventSource: AnyObject {
    /// Watches a directory, or waits for it to appear if it doesn't exist. Watching it again adds the new kinds. If it
    /// exists, `directoryAppeared` is among the next notices.
    func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws
    /// Changes the kinds of events of a watched directory. No event of a kind that stays is lost.
    func setKinds(_ kinds: DirectoryEvent.Kinds, of directory: FilePath) throws
    /// Stops watching a directory.
    func unwatch(_ directory: FilePath)
    /// Watches the file with that name in a watched directory for writes through its other hard links, which are
    /// reported as the directory's own events. `enabled: false` stops that. Call it again if the file is replaced, and
    /// after an overflow.
    func watchFile(_ name: FilePath.Component, in directory: FilePath, enabled: Bool) throws
    /// Watches an open file, whatever its names, for writes and for closes after writing. They are reported as events
    /// of that name in that directory, which needn't be watched. `watchFile` with the same name stops that.
    func watchOpenFile(_ file: borrowing Descriptor, as name: FilePath.Component, in directory: FilePath) throws
    /// Checks whether the watched paths lead to other directories without an event, because file systems were mounted.
    /// Changes are among the next notices.
    func recheckPaths()
    /// Registers an index for writes to a file in a watched directory. `next` may report the index instead of an event.
    /// Nil unregisters the file.
    func setFastPath(_ name: FilePath.Component, in directory: FilePath, index: Int?)
    /// Waits for at least one notice, and returns those available in order; a burst may come in parts. Returns none
    /// after `timeout` (nil: no timeout), or if the source only had internal work.
    ///
    /// If the first event is only a write to a registered file, the source passes its index to `onFastPath` before
    /// anything else, and the event is no notice. `onFastPath` may call `next` itself. If it is nil, all events come as
    /// notices.
    ///
    /// A source may call `onReadable` when an event has ended its wait, before it reads the event.
    func next(timeout: Duration?, onReadable: (() -> Void)?, onFastPath: ((Int) -> Void)?) throws -> [Notice]
    /// Suspends write events in these directories while `body` runs, except for the named files. Per-write events cost
    /// a busy writer more than everything else the agent does. All other events are reported as usual. A directory that
    /// can't be watched as before afterwards is among the next notices as `unwatchable`.
    func withModifyEventsSuspended(except files: [FilePath: [FilePath.Component]], _ body: () throws -> Void) throws
    /// Makes `next` return. May be called on any thread.
    func wake()
}

extension EventSource {
    package func next(timeout: Duration?) throws -> [Notice] {
        try next(timeout: timeout, onReadable: nil, onFastPath: nil)
    }
}
