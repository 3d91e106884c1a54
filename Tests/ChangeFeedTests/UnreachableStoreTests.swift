import ChangeFeed
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// No event reports that a parent directory may be entered again.
@Suite(.enabled(if: geteuid() == 0, "it needs another user")) struct UnreachableStoreTests {
    @Test func polls() throws {
        let root = try TemporaryDirectory()
        let top = try Directory(root.path)
        try top.setPermissions(0o755)
        try top.makeDirectory("parent", mode: 0o755)
        let parent = try top.directory("parent")
        try parent.makeDirectory("group", mode: 0o777)
        let group = try parent.directory("group")
        try group.setPermissions(0o777)
        let store = group.path.appending("Notes.sqlite").string
        _ = try python("import sqlite3; sqlite3.connect('\(store)').execute('CREATE TABLE note (text)')")
        let observer = StoreObserver(directory: group.path, name: try #require(StoreName("Notes.sqlite")))
        // Of this thread only: other tests run in parallel.
        func poll() -> Observation {
            _ = setFileSystemUser(65_534)
            defer { _ = setFileSystemUser(0) }
            observer.recordEvent(.database, created: true, modified: true, removed: false)
            return observer.poll { nil }
        }
        _ = poll()
        #expect(observer.isReadable)
        try parent.setPermissions(0)
        let closed = poll()
        #expect(closed.finding == .discontinued(.unreadable))
        #expect(closed.nextPollDelay != nil)
        #expect(poll().nextPollDelay != nil)
        try parent.setPermissions(0o755)
        let open = poll()
        #expect(open.finding == .changed)
        #expect(open.nextPollDelay == nil)
    }
}

/// setfsuid(2), which the Glibc module doesn't export: sets the calling thread's user for file system access.
@_silgen_name("setfsuid")
private func setFileSystemUser(_ user: uid_t) -> CInt
