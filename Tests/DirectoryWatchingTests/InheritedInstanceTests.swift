import DirectoryWatching
import InotifyToolsWatching
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A parent process may leave this one an inotify instance, which is not the one that events are read from.
@Suite(.serialized) struct InheritedInstanceTests {
    @Test(arguments: Access.allCases) func ignoresAnInheritedInstance(_ access: Access) throws {
        let turn = Turn()
        // Its source is gone when this returns.
        try expectOwnEvents(access)
        withExtendedLifetime(turn) {}
    }

    private func expectOwnEvents(_ access: Access) throws {
        let inherited = Descriptor(owning: inotify_init1(Int32(bitPattern: UInt32(O_CLOEXEC))))
        let highest = Descriptor(owning: fcntl(inherited.raw, F_DUPFD_CLOEXEC, 700))
        #expect(highest.raw >= 700)
        let (root, privateDirectory) = (try TemporaryDirectory(), try TemporaryDirectory())
        let source = try InotifySource(privateDirectory: privateDirectory.path, through: access)
        try source.watch(root.path, for: [.created])
        #expect(try source.next(timeout: .zero) == [.directoryAppeared(root.path)])
        try Directory(root.path).makeDirectory("one", mode: 0o700)
        let event = DirectoryEvent(directory: root.path, name: "one", kinds: .created)
        #expect(try source.next(timeout: .zero) == [.event(event)])
    }
}
