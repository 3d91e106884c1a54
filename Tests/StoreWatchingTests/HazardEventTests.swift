import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreWatching

/// Stores in danger, as a direct watcher hears of them.
@Suite(.ownThreads) struct HazardEventTests {
    private let rig: DirectRig

    init() throws {
        rig = try DirectRig()
        try rig.sqlite("PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
    }

    private func openShell() throws -> RunningProcess {
        let shell = try RunningProcess("sqlite3", [Word(rig.store)])
        shell.send("INSERT INTO note VALUES ('one') RETURNING 'done';")
        try shell.line { $0 == "done" }
        return shell
    }

    /// Returns the next event about a hazard.
    private func nextHazard() throws -> StoreEvent {
        let isHazard = { (found: DirectRig.Found) in ["hazard", "hazard_over"].contains(found.event.type) }
        return try #require(try rig.events(until: isHazard).first(where: isHazard)).event
    }

    @Test func reportsAnUnlinkedLogAndItsEnd() throws {
        let shell = try openShell()
        try rig.watch(rig.store)
        #expect(unlink(rig.store.string + "-wal") == 0)
        guard case .hazard(let hazard) = try nextHazard() else { throw Unexpected("no hazard") }
        #expect(hazard.code == "orphaned_log" && hazard.holder.pid == shell.pid && hazard.expectedInode == nil)
        #expect(hazard.path == Array((rig.store.string + "-wal").utf8))
        shell.closeInput()
        guard case .hazardOver(let over) = try nextHazard() else { throw Unexpected("the hazard isn't over") }
        #expect(over.code == "orphaned_log" && over.holder.pid == shell.pid && over.inode == hazard.inode)
    }

    /// Each commit is told, also one before the hazard is seen, and the store's position stays.
    @Test func reportsTheCommitsToAnUnlinkedLog() throws {
        let shell = try openShell()
        try rig.watch(rig.store)
        #expect(unlink(rig.store.string + "-wal") == 0 && unlink(rig.store.string + "-shm") == 0)
        shell.send("INSERT INTO note VALUES ('early') RETURNING 'early';")
        try shell.line { $0 == "early" }
        // The index may have been read once more before it was closed: then it is a change of the store.
        _ = try rig.events { $0.event.isCommit }
        // Device, inode, and the last commit: the file's times may become known later.
        func commit(_ token: DirectToken) -> [Substring] {
            Array(token.description.split(separator: ".").prefix(6))
        }
        let before = commit(rig.token())
        shell.send("INSERT INTO note VALUES ('late') RETURNING 'late';")
        try shell.line { $0 == "late" }
        let isBranch = { (found: DirectRig.Found) in
            if case .branchChange(_, let pid) = found.event { pid == shell.pid } else { false }
        }
        let late = try #require(try rig.events(until: isBranch).first(where: isBranch))
        #expect(commit(late.token) == before)
        // A commit to the store at the name is told as before.
        try rig.sqlite("INSERT INTO note VALUES ('other')")
        _ = try rig.events { if case .change = $0.event { true } else { false } }
        shell.closeInput()
    }

    @Test func reportsADatabaseThatAnotherTookTheNameOf() throws {
        let shell = try openShell()
        try rig.watch(rig.store)
        let copy = FilePath(rig.store.string + ".new")
        #expect(try run("sqlite3", [Word(copy), "CREATE TABLE note (text)"]).status == 0)
        #expect(rename(copy.string, rig.store.string) == 0)
        guard case .hazard(let hazard) = try nextHazard() else { throw Unexpected("no hazard") }
        #expect(hazard.code == "orphaned_database" && hazard.holder.pid == shell.pid)
        shell.closeInput()
    }
}
