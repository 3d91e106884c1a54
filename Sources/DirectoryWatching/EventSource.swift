import LinuxSystem
import SystemPackage

/// Something that happened in a watched directory.
package struct DirectoryEvent: Sendable, Equatable {
    package struct Kinds: OptionSet, Hashable, Sendable {
        package let rawValue: UInt32
        package init(rawValue: UInt32) { self.rawValue = rawValue }

        package static let modified = Kinds(rawValue: 1 << 0)
        package static let opened = Kinds(rawValue: 1 << 1)
        package static let closedAfterWriting = Kinds(rawValue: 1 << 2)
        package static let closedAfterReading = Kinds(rawValue: 1 << 3)
        package static let created = Kinds(rawValue: 1 << 4)
        package static let deleted = Kinds(rawValue: 1 << 5)
        package static let movedIn = Kinds(rawValue: 1 << 6)
        package static let movedOut = Kinds(rawValue: 1 << 7)
        package static let attributes = Kinds(rawValue: 1 << 8)
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
    /// The directory was deleted, moved away or unmounted; it is waited for.
    case directoryVanished(FilePath)
    /// The kernel's queue overflowed: anything may have happened in any directory. All watches are in place again.
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
    /// Waits for at least one notice, and returns those that are there (a burst in parts), in order; empty when `timeout` is over first
    /// (nil: no time-out).
    func next(timeout: Duration?) throws -> [Notice]
    /// Makes `next` return, from any thread.
    func wake()
}
