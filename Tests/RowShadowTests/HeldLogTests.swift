import GRDB
import Glibc
import LinuxSystem
import RowShadow
import TestSupport
import Testing

/// Steps of programs that open a store in WAL mode, write it and close it.
@Suite(.ownThreads) struct HeldLogTests {
    private static let note = "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note VALUES (1, 'a')"

    /// Runs a program whose log is seen before it is removed. It is a process: others that this one starts would keep
    /// the files of a connection open for a moment.
    private func run(_ shadow: FollowedShadow, _ scripts: String...) throws {
        let program = try SQLiteHolder(shadow.store)
        for sql in scripts { try execute(sql, by: program) }
        shadow.follower?.readJournalEvents()
        try program.end()
    }

    private func execute(_ sql: String, by program: SQLiteHolder) throws {
        try program.run("c.execute(\"\(sql)\").fetchall()")
    }

    @Test func eachProgramIsAStep() throws {
        let shadow = try FollowedShadow(Self.note)
        #expect(try shadow.steps() == [])
        try shadow.awaitWatch()
        for id in 2...4 { try run(shadow, "INSERT INTO note VALUES (\(id), 'x')") }
        try run(shadow, "SELECT * FROM note")
        try run(shadow, "DELETE FROM note WHERE id = 2", "UPDATE note SET text = 'b' WHERE id = 1")
        let inserts = (2...4).map { FollowedShadow.Step(kind: .exact, rows: ["\($0): none > \($0),'x'"]) }
        #expect(
            try shadow.steps() == inserts + [
                .init(kind: .exact, rows: ["2: 2,'x' > none"]), .init(kind: .exact, rows: ["1: 1,'a' > 1,'b'"]),
            ])
        // One that has the store open, and one after it.
        let program = try SQLiteHolder(shadow.store)
        try execute("INSERT INTO note VALUES (5, 'x')", by: program)
        #expect(try shadow.steps() == [.init(kind: .exact, rows: ["5: none > 5,'x'"])])
        try execute("INSERT INTO note VALUES (6, 'x')", by: program)
        try program.end()
        try run(shadow, "INSERT INTO note VALUES (7, 'x')")
        #expect(
            try shadow.steps() == [
                .init(kind: .exact, rows: ["6: none > 6,'x'"]), .init(kind: .exact, rows: ["7: none > 7,'x'"]),
            ])
        #expect(try shadow.steps() == [])
    }

    /// What comes after a write that is no transaction isn't told as one.
    @Test func aWriteBetweenProgramsIsNetWithThem() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        try shadow.awaitWatch()
        try run(shadow, "INSERT INTO note VALUES (2, 'x')")
        // The last byte of the second page is the first row's.
        try shadow.flipBit(of: shadow.store, at: 2 * 4096 - 1)
        try run(shadow, "INSERT INTO note VALUES (3, 'x')")
        #expect(
            try shadow.steps() == [
                .init(kind: .net, rows: ["1: 1,'a' > 1,'`'", "2: none > 2,'x'", "3: none > 3,'x'"])
            ])
        try run(shadow, "INSERT INTO note VALUES (4, 'x')")
        #expect(try shadow.steps() == [.init(kind: .exact, rows: ["4: none > 4,'x'"])])
    }

    /// A log that was restarted has lost its first commits.
    @Test func aLogThatWasRestartedIsANetDifference() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let insert = "INSERT INTO note VALUES"
        try run(shadow, "\(insert) (2, 'x')", "PRAGMA wal_checkpoint(TRUNCATE)", "\(insert) (3, 'x')")
        #expect(
            try shadow.steps() == [.init(kind: .net, rows: ["2: none > 2,'x'", "3: none > 3,'x'"])])
    }

    /// The index is made anew after a program was killed, and counts the commits from then on. Two were before.
    @Test func anIndexThatWasMadeAnewCountsNothing() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let killed = try SQLiteHolder(shadow.store)
        try killed.run("c.execute('SELECT * FROM note').fetchall()")
        _ = try shadow.follower?.advance(comparesAll: true)
        for id in 2...3 { try killed.run("c.execute('INSERT INTO note VALUES (\(id), \"x\")')") }
        try killed.kill()
        let others = try [0, 1].map { _ in try DatabaseQueue(path: shadow.store.string) }
        for (queue, sql) in zip(others, ["PRAGMA wal_checkpoint(RESTART)", "INSERT INTO note VALUES (4, 'x')"]) {
            try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        }
        #expect(
            try shadow.steps() == [
                .init(kind: .net, rows: ["2: none > 2,'x'", "3: none > 3,'x'", "4: none > 4,'x'"])
            ])
        for queue in others { try queue.close() }
    }

    /// Its commits are gone, and what comes after them doesn't lead on from them.
    @Test func aLogThatSomebodyRemovedIsCompared() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        try shadow.awaitWatch()
        let program = try SQLiteHolder(shadow.store)
        try execute("INSERT INTO note VALUES (2, 'x')", by: program)
        #expect(try shadow.steps() == [.init(kind: .exact, rows: ["2: none > 2,'x'"])])
        for end in ["-shm", "-wal"] { #expect(unlink(shadow.store.string + end) == 0) }
        #expect(try shadow.steps() == [.init(kind: .net, rows: ["2: 2,'x' > none"])])
        try program.end()
    }
}
