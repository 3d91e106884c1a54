import Glibc
import LinuxSystem
import SystemPackage

/// Something that happened in a watched directory.
package struct DirectoryEvent: Sendable, Equatable {
    /// The bits are those of inotify(7).
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

        package static let arrived: Kinds = [.created, .movedIn]
        package static let departed: Kinds = [.deleted, .movedOut]
    }

    /// The directory as it was named to `watch`.
    package let directory: FilePath
    package let name: FilePath.Component
    package let kinds: Kinds

    package init(directory: FilePath, name: FilePath.Component, kinds: Kinds) {
        self.directory = directory
        self.name = name
        self.kinds = kinds
    }
}

/// What a wait brought.
package enum Notice: Sendable, Equatable {
    case event(DirectoryEvent)
    /// The directory, named as it was to `watch`, is there (again), and is watched from now on: look at all in it.
    case directoryAppeared(FilePath)
    /// The directory's own attributes are others, who may read it perhaps: look at all in it. Told where `attributes`
    /// were asked for.
    case directoryChanged(FilePath)
    /// The directory was deleted, moved away or unmounted; it is waited for.
    case directoryVanished(FilePath)
    /// The directory can't be followed any more, wherever it is: it is no longer watched.
    case unwatchable(FilePath, SystemError)
    /// The kernel's queue overflowed: anything may have happened in any directory. All directories' watches are in
    /// place again, and no file is watched alone any more.
    case overflow
    /// `wake` was called.
    case woken
}

/// Where notices come from: libinotifytools in the agent, memory in tests. All but `wake` is for one thread.
package protocol EventSource: AnyObject {
    /// Watches a directory, or waits for it to come where it isn't there. Watching it again with other kinds adds
    /// them. `directoryAppeared` is among the next notices when it is there.
    func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws
    func unwatch(_ directory: FilePath)
    /// Watches the file that is there by that name now, in a watched directory, for writes through other names of it:
    /// they come as the directory's own events. Not `alone`: no longer. To be called again when the file is another
    /// one, and after an overflow.
    func watch(_ name: FilePath.Component, in directory: FilePath, alone: Bool) throws
    /// Looks whether other directories have come to stand at the watched names without an event: file systems were mounted.
    /// What there is to tell is among the next notices.
    func lookAtPlaces()
    /// A number for writes to a file in a watched directory: `next` may say it, in place of an event. Nil ends that.
    func mark(_ name: FilePath.Component, in directory: FilePath, as number: Int?)
    /// Waits for at least one notice, and returns those that are there (a burst in parts), in order; empty when `timeout` is over first
    /// (nil: no time-out), or the source had something to look at that is no matter of others.
    ///
    /// Where the first thing that comes is a write to a marked file, and no more than a write, `written` is called with its
    /// number before anything else is done, and it is no notice. It may call `next` itself. Nil: all comes as notices.
    func next(timeout: Duration?, written: ((Int) -> Void)?) throws -> [Notice]
    /// Meanwhile, of the files in these directories only those that are named are heard of when they are written: where
    /// somebody writes without rest, an event for each write costs them more than all else that is done here. All else
    /// is told as always. A directory that can't be watched as before afterwards is among the next notices as
    /// `unwatchable`.
    func rest(hearing files: [FilePath: [FilePath.Component]], while body: () throws -> Void) throws
    /// Makes `next` return, from any thread.
    func wake()
}

extension EventSource {
    package func next(timeout: Duration?) throws -> [Notice] { try next(timeout: timeout, written: nil) }
}
