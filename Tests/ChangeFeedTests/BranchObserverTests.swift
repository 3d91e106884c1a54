import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import ChangeFeed

@Suite struct BranchObserverTests {
    @Test func anotherObserverGoesOnAfterTheLastCommit() throws {
        let scratch = try TemporaryDirectory()
        let holder = try SQLiteHolder(scratch.path.appending("Notes.sqlite"))
        try holder.run("c.execute('PRAGMA journal_mode = WAL'); c.execute('CREATE TABLE t (a)')")
        let directory = try Directory(scratch.path)
        let first = BranchObserver(log: try directory.open("Notes.sqlite-wal", flags: O_RDONLY), starts: [])
        #expect(first.position == nil)
        #expect(first.poll() != nil && first.poll() == nil)
        let start = try #require(first.position)
        let second = BranchObserver(log: try directory.open("Notes.sqlite-wal", flags: O_RDONLY), starts: [start])
        #expect(second.poll() == nil)
        try holder.insert()
        #expect(second.poll() != nil && first.poll() != nil)
        try holder.end()
    }
}
