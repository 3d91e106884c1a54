import SQLiteFormat
import TestSupport
import Testing

@testable import ChangeFeed

/// The commits that are published before their event is read.
@Suite(.ownThreads) struct RepeatedCommitTests {
    private static let schema = """
        PRAGMA journal_mode = WAL;
        CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT, flag INTEGER);
        CREATE INDEX note_text ON note (text);
        CREATE TABLE other (id INTEGER PRIMARY KEY, text TEXT);
        INSERT INTO note (text) VALUES ('first');
        INSERT INTO other (text) VALUES ('first')
        """

    /// A rig that has found one commit to `note`, and the connection that made it.
    private func rig() throws -> (ObserverRig, Shell) {
        let rig = try ObserverRig { try ObserverRig.once($0, Self.schema) }
        let shell = try rig.shell()
        try rig.findTables()
        try shell.execute("INSERT INTO note (text) VALUES ('second')")
        #expect(try rig.findings() == [.changed])
        return (rig, shell)
    }

    @Test func findsACommitLikeTheLastOne() throws {
        let (rig, shell) = try rig()
        #expect(rig.findRepeatedCommit() == .nothing)
        for text in ["third", "fourth"] {
            try shell.execute("INSERT INTO note (text) VALUES ('\(text)')")
            #expect(rig.findRepeatedCommit() == .repeated)
            #expect(rig.confirmRepeatedCommit() == TableChanges(["note"], isComplete: true))
            // It is reported once.
            #expect(rig.poll().finding == .unchanged)
        }
        #expect(try rig.findings().isEmpty)
        try shell.close()
    }

    /// Several commits that came together are one change.
    @Test func findsSeveralCommitsAtOnce() throws {
        let (rig, shell) = try rig()
        try shell.execute("INSERT INTO note (text) VALUES ('third'); INSERT INTO note (text) VALUES ('fourth')")
        #expect(rig.findRepeatedCommit() == .repeated)
        #expect(rig.confirmRepeatedCommit() == TableChanges(["note"], isComplete: true))
        #expect(rig.poll().finding == .unchanged)
        try shell.close()
    }

    /// An interior page belongs to its tree as a leaf does.
    @Test func findsACommitThatRewritesAnInteriorPage() throws {
        let rig = try ObserverRig {
            let rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 4000) "
            try ObserverRig.once(
                $0, Self.schema + "; " + rows + "INSERT INTO note (text) SELECT printf('%0200d', i) FROM n")
        }
        let shell = try rig.shell()
        try rig.findTables()
        for step in 0..<20 {
            var confirmed = TableChanges.nothing
            let found = try rig.tables {
                // The cells of interior pages of the index belong to rows, too.
                try shell.execute("UPDATE note SET flag = 1, text = text || 'x' WHERE id % 400 = \(step)")
                if rig.findRepeatedCommit() == .repeated { confirmed = rig.confirmRepeatedCommit() }
            }
            #expect(found.names.union(confirmed.names) == ["note"])
        }
        try shell.close()
    }

    /// The wal-index has a block for each 4,096 frames.
    @Test func findsCommitsInEachBlockOfTheIndex() throws {
        let (rig, shell) = try rig()
        try shell.execute(
            "PRAGMA wal_autocheckpoint = 0; "
                // As many pages again are the index's.
                + "INSERT INTO note (text) VALUES (zeroblob(2010 * (SELECT page_size FROM pragma_page_size)))")
        _ = try rig.findings()
        // So large a transaction isn't attributed by its frames.
        try rig.findTables()
        try shell.execute("INSERT INTO other (text) VALUES ('x')")
        _ = try rig.findings()
        var found = 0
        for _ in 0..<80 {
            try shell.execute("INSERT INTO other (text) VALUES ('x')")
            guard rig.findRepeatedCommit() == .repeated else {
                #expect(try rig.findings() == [.changed])
                continue
            }
            found += 1
            #expect(rig.confirmRepeatedCommit() == TableChanges(["other"], isComplete: true))
            #expect(rig.poll().finding == .unchanged)
        }
        // A page is full once, and the page numbers of the 4,096th commit are in the next block.
        #expect(found >= 77)
        try shell.close()
    }

    @Test(
        arguments: [
            ("INSERT INTO other (text) VALUES ('second')", ["other"]),
            // Only the table's own tree.
            ("UPDATE note SET flag = 1", ["note"]),
            (
                "BEGIN; INSERT INTO note (text) VALUES ('x'); INSERT INTO other (text) VALUES ('x'); COMMIT",
                ["note", "other"]
            ),
            // A tree grows, or the schema changes.
            ("INSERT INTO note (text) VALUES (hex(zeroblob(20000)))", ["note"]),
            ("CREATE TABLE third (a); INSERT INTO note (text) VALUES ('x')", ["note", "third"]),
            ("ALTER TABLE note RENAME TO renamed; INSERT INTO renamed (text) VALUES ('x')", ["note", "renamed"]),
            ("DROP INDEX note_text", ["note"]),
            ("PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO other (text) VALUES ('x')", ["other"]),
        ] as [(String, Set<ExactName>)])
    func leavesAnyOtherCommitToThePoll(statement: String, tables: Set<ExactName>) throws {
        let (rig, shell) = try rig()
        let found = try rig.tables {
            try shell.execute(statement)
            #expect(rig.findRepeatedCommit() != .repeated)
        }
        #expect(found.isComplete)
        #expect(found.names.isSuperset(of: tables))
        try shell.close()
    }

    /// Only a transaction that is visible to readers is a commit.
    @Test func findsNoTransactionBeforeItsEnd() throws {
        let (rig, shell) = try rig()
        try shell.execute("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; UPDATE note SET text = text || 'x'")
        #expect(rig.findRepeatedCommit() == .nothing)
        try shell.execute("COMMIT")
        #expect(rig.findRepeatedCommit() == .repeated)
        _ = rig.confirmRepeatedCommit()
        try shell.execute("BEGIN; UPDATE note SET text = text || 'x'; ROLLBACK")
        #expect(rig.findRepeatedCommit() == .nothing)
        try shell.close()
    }

    /// Any other event may mean that the store's names stand for other files.
    @Test func looksForNothingAfterTheStoreIsClosedOrReplaced() throws {
        let (rig, shell) = try rig()
        try shell.close()
        _ = try rig.findings()
        #expect(rig.findRepeatedCommit() == .other)
        rig.close()
        #expect(rig.findRepeatedCommit() == .other)
    }
}
