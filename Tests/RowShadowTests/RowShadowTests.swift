import ChangeFeed
import Foundation
import GRDB
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import RowShadow

@Suite struct RowShadowTests {
    private static let note = "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note VALUES (1, 'a')"

    @Test func tellsEachTransactionOfALog() throws {
        let shadow = try FollowedShadow(Self.note)
        let queue = try DatabaseQueue(path: shadow.store.string)
        func write(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try write("INSERT INTO note VALUES (2, 'b')")
        _ = try shadow.steps()
        try write("UPDATE note SET text = 'c' WHERE id = 1")
        try write("BEGIN; INSERT INTO note VALUES (3, 'd'); DELETE FROM note WHERE id = 2; COMMIT")
        try write("BEGIN; DELETE FROM note; ROLLBACK")
        #expect(
            try shadow.steps() == [
                .init(kind: .exact, rows: ["1: 1,'a' > 1,'c'"]),
                .init(kind: .exact, rows: ["2: 2,'b' > none", "3: none > 3,'d'"]),
            ])
        #expect(try shadow.steps() == [])
    }

    /// A step that is longer than the log may be stays until it is told, and so do those that wait for their reader.
    @Test func keepsTheStepsThatWerentTold() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let known = try #require(shadow.follower?.shadow)
        known.limits = .init(logFile: 1000, log: 4000)
        known.firstUnread = known.lastStep + 1
        for length in [9000, 8000, 7000] {
            try shadow.write("UPDATE note SET text = zeroblob(\(length))")
            _ = try shadow.follower?.advance(comparesAll: false)
        }
        #expect(try shadow.steps().count == 3)
        known.firstUnread = known.lastStep + 1
        try shadow.write("UPDATE note SET text = zeroblob(6000)")
        _ = try shadow.follower?.advance(comparesAll: false)
        // The step before proves the reader's token.
        #expect(try known.firstStep() == known.lastStep - 1)
    }

    /// Numbers that were given after the backup are given again, to other steps.
    @Test func aCopyPutBackFromABackupContinuesNoLaterPosition() throws {
        let shadow = try FollowedShadow(Self.note)
        let saved = shadow.directory.path.appending("saved")
        func advance(_ sql: String) throws -> StepPosition {
            try shadow.write(sql)
            _ = try shadow.follower?.advance(comparesAll: true)
            return try #require(try shadow.follower?.shadow.lastPosition())
        }
        let first = try advance("INSERT INTO note VALUES (2, 'b')")
        shadow.abandon()
        try FileManager.default.copyItem(atPath: shadow.copy.string, toPath: saved.string)
        try shadow.open()
        let second = try advance("INSERT INTO note VALUES (3, 'c')")
        shadow.abandon()
        try FileManager.default.removeItem(atPath: shadow.copy.string)
        try FileManager.default.copyItem(atPath: saved.string, toPath: shadow.copy.string)
        try shadow.open()
        let restored = try #require(shadow.follower?.shadow)
        #expect(try restored.continuity(after: second) == .foreign)
        let other = try advance("INSERT INTO note VALUES (4, 'd')")
        #expect(other.step == second.step && other != second)
        #expect(try restored.continuity(after: second) == .foreign)
        #expect(try restored.continuity(after: first) == .continuous)
        #expect(try restored.continuity(after: other) == .continuous)
        let log = try #require(try shadow.place.logs().first)
        #expect(try log.continuity(after: second) == .foreign && log.continuity(after: first) == .continuous)
        #expect(try log.lastPosition() == other)
    }

    /// The fingerprint of each step is ten times its number.
    @Test func aLogContinuesAfterAPositionThatItProves() {
        func continuity(_ step: UInt64, _ fingerprint: UInt64?, first: UInt64 = 5) -> LogContinuity {
            LogContinuity(after: StepPosition(step: step, fingerprint: fingerprint), first: first, last: 9) { $0 * 10 }
        }
        #expect(continuity(4, 40) == .trimmed && continuity(0, nil) == .trimmed)
        #expect(continuity(5, 50) == .continuous && continuity(9, 90) == .continuous)
        #expect(continuity(9, 91) == .foreign && continuity(9, nil) == .foreign && continuity(10, 100) == .foreign)
        #expect(continuity(0, nil, first: 1) == .continuous)
    }

    /// The log and the index have lost their names, and the database has their content.
    @Test func readsTheLogOfAProgramThatHasClosedTheStore() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let queue = try DatabaseQueue(path: shadow.store.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: "SELECT * FROM note") }
        shadow.follower?.readJournalEvents()
        try queue.writeWithoutTransaction { try $0.execute(sql: "INSERT INTO note VALUES (2, 'b')") }
        try queue.writeWithoutTransaction { try $0.execute(sql: "UPDATE note SET text = 'c' WHERE id = 2") }
        try queue.close()
        #expect(
            try shadow.steps() == [
                .init(kind: .exact, rows: ["2: none > 2,'b'"]), .init(kind: .exact, rows: ["2: 2,'b' > 2,'c'"]),
            ])
    }

    /// A program that opens the store is between the making of the index and its first commit.
    @Test func tellsEachTransactionAfterALookAtAnUnfinishedIndex() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let queue = try DatabaseQueue(path: shadow.store.string)
        func write(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try write("SELECT * FROM note")
        shadow.follower?.readJournalEvents()
        let index = try FileHandle(forUpdating: shadow.directory.path.appending("s.db-shm").url)
        let header = try #require(try index.read(upToCount: 96))
        func overwriteHeader(_ bytes: Data) throws {
            try index.seek(toOffset: 0)
            try index.write(contentsOf: bytes)
        }
        try overwriteHeader(Data(count: header.count))
        #expect(try shadow.follower?.advance(comparesAll: false) == .busy)
        try overwriteHeader(header)
        #expect(try shadow.follower?.advance(comparesAll: false) == .current)
        try write("INSERT INTO note VALUES (2, 'b')")
        try write("UPDATE note SET text = 'c' WHERE id = 2")
        #expect(
            try shadow.steps() == [
                .init(kind: .exact, rows: ["2: none > 2,'b'"]), .init(kind: .exact, rows: ["2: 2,'b' > 2,'c'"]),
            ])
    }

    @Test func tellsTransactionsBeforeAndAfterARestartOfTheLog() throws {
        let shadow = try FollowedShadow(Self.note)
        let queue = try DatabaseQueue(path: shadow.store.string)
        func write(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        for id in 2...6 { try write("INSERT INTO note VALUES (\(id), 'x')") }
        _ = try shadow.steps()
        try write("UPDATE note SET text = 'before' WHERE id = 2")
        try write("PRAGMA wal_checkpoint(RESTART)")
        try write("UPDATE note SET text = 'after' WHERE id = 2")
        #expect(
            try shadow.steps() == [
                .init(kind: .exact, rows: ["2: 2,'x' > 2,'before'"]),
                .init(kind: .exact, rows: ["2: 2,'before' > 2,'after'"]),
            ])
    }

    @Test(arguments: ["wal", "delete", "persist", "truncate"])
    func tellsTheNetOfDowntime(_ mode: String) throws {
        let shadow = try FollowedShadow(Self.note, mode: mode)
        shadow.abandon()
        try shadow.write(
            "INSERT INTO note VALUES (2, 'b'), (3, 'c')", "UPDATE note SET text = 'z' WHERE id = 2",
            "DELETE FROM note WHERE id = 3", "VACUUM")
        try shadow.open()
        #expect(shadow.follower?.isNew == false)
        #expect(try shadow.steps() == [.init(kind: .net, rows: ["2: none > 2,'z'"])])
    }

    @Test func findsTheStepsOfSeveralReaders() throws {
        let followed = try FollowedShadow("CREATE TABLE t (x)")
        let inserts = (1...8).map { "INSERT INTO t VALUES (\($0))" }
        let writer = try DatabaseQueue(path: followed.store.string)
        for sql in inserts {
            try writer.write { try $0.execute(sql: sql) }
            #expect(try followed.steps().count == 1)
        }
        let shadow = try #require(followed.follower).shadow
        for number: UInt64 in [0, 5, 1, 6, 2, 0, 7, 3, 1, 8, 4, 2, 7, 8, 0, 6, 1, 7, 2, 8, 3] {
            #expect(try shadow.step(after: number)?.step.number == (number == 8 ? nil : number + 1))
        }
        try writer.write { try $0.execute(sql: "INSERT INTO t VALUES (9)") }
        #expect(try followed.steps().first?.rows == ["9: none > 9"])
        #expect(try shadow.step(after: 8)?.step.number == 9)
        #expect(try shadow.step(after: 4)?.step.number == 5)
    }

    /// A program that is killed after the head of the redo file was written leaves the state before it.
    @Test func completesAnInterruptedStep() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let state = shadow.place.path.appending("0").appending("state")
        let pages = shadow.place.path.appending("0").appending("pages")
        let before = try (Data(contentsOf: state.url), Data(contentsOf: pages.url))
        try shadow.write("INSERT INTO note VALUES (2, 'b')")
        #expect(try shadow.follower?.advance(comparesAll: true) == .current)
        shadow.abandon()
        try before.0.write(to: state.url)
        try before.1.write(to: pages.url)
        try shadow.open()
        #expect(shadow.follower?.isNew == false)
        #expect(try shadow.steps().map(\.rows) == [["2: none > 2,'b'"]])
    }

    @Test func remakesADamagedShadow() throws {
        let shadow = try FollowedShadow(Self.note)
        let epoch = shadow.follower?.shadow.epoch
        shadow.abandon()
        try Data([1, 2, 3]).write(to: shadow.place.path.appending("0").appending("state").url)
        try shadow.open()
        #expect(shadow.follower?.isNew == true)
        #expect(shadow.follower?.shadow.epoch != epoch)
        try shadow.write("INSERT INTO note VALUES (2, 'b')")
        #expect(try shadow.steps().map(\.rows) == [["2: none > 2,'b'"]])
    }

    /// The store's present page differs from a page that nobody wrote: a difference from it would be a wrong row.
    @Test(arguments: ["wal", "delete"]) func tellsNothingFromADamagedPage(_ mode: String) throws {
        let shadow = try FollowedShadow(Self.note, mode: mode)
        _ = try shadow.steps()
        let queue = try DatabaseQueue(path: shadow.store.string)
        func write(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try write("INSERT INTO note VALUES (2, 'b')")
        _ = try shadow.steps()
        // The pages that are in memory are the right ones. These push them out.
        try write("CREATE TABLE filler (x)")
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
        try write("INSERT INTO filler \(many) SELECT zeroblob(3000) FROM n")
        _ = try shadow.steps()
        let epoch = shadow.follower?.shadow.epoch
        try shadow.damageCopy()
        try write("UPDATE note SET text = 'c' WHERE id = 2")
        for _ in 0..<2 {
            #expect {
                _ = try shadow.steps()
            } throws: { error in
                if case RowShadowError.damaged? = error as? RowShadowError { true } else { false }
            }
        }
        try shadow.follower?.remake()
        #expect(shadow.follower?.shadow.epoch != epoch)
        #expect(shadow.follower?.shadow.lastStep == 0)
        try queue.close()
    }

    @Test func tellsNothingFromADamagedLog() throws {
        let shadow = try FollowedShadow(Self.note)
        try shadow.write("INSERT INTO note VALUES (2, 'b')")
        #expect(try shadow.steps().count == 1)
        let name = try #require(try Directory(shadow.copy).names().first { $0.string.hasPrefix("log") })
        let log = shadow.copy.appending(name)
        let step = try #require(try shadow.follower?.shadow.step(after: 0))
        for offset in 0..<UInt64(try #require(FileStatus(following: log)).size) {
            try shadow.flipBit(of: log, at: offset)
            #expect("byte \(offset)") {
                let file = try OwnFile(reading: name, in: Directory(shadow.copy))
                try StepReader(file, at: 0).forEach(table: { _ in }, row: { _ in })
            } throws: { error in
                if case RowShadowError.damaged? = error as? RowShadowError { true } else { false }
            }
            try shadow.flipBit(of: log, at: offset)
        }
        try step.forEach(table: { _ in }, row: { _ in })
    }

    @Test func makesADamagedCopyAnewWhenItIsOpened() throws {
        let shadow = try FollowedShadow(Self.note)
        let epoch = shadow.follower?.shadow.epoch
        shadow.abandon()
        try shadow.damageCopy()
        try shadow.open()
        #expect(shadow.follower?.isNew == true)
        #expect(shadow.follower?.shadow.epoch != epoch)
    }

    /// An index that lists frames of a log that is gone is what a killed program and a restored database leave.
    @Test(arguments: ["wal", "delete"]) func makesACopyAnewThatIsDamagedWhileItIsMade(_ mode: String) throws {
        let shadow = try FollowedShadow(Self.note, mode: mode)
        shadow.abandon()
        func follower(damaging count: Int) throws -> RowFollower {
            var rest = count
            try Data([1]).write(to: shadow.copy.appending("state").url)
            return try RowFollower(shadow.store, shadow.place.takeSlot(epoch: nil), limit: .max, within: .ample) {
                rest -= 1
                if rest >= 0 { try shadow.damageCopy() }
            }
        }
        #expect(throws: RowShadowError.damaged(shadow.copy.appending("pages"))) { try follower(damaging: 3) }
        let made = try follower(damaging: 2)
        #expect(made.damagedCopies == 2)
        try made.shadow.verify()
    }

    @Test func readsAStoreBesideAnIndexThatNobodyUses() throws {
        let shadow = try FollowedShadow(Self.note)
        let queue = try DatabaseQueue(path: shadow.store.string)
        try queue.writeWithoutTransaction { try $0.execute(sql: "INSERT INTO note VALUES (2, 'b')") }
        let other = shadow.directory.path.appending("other.db")
        for end in ["", "-shm"] {
            try FileManager.default.copyItem(atPath: shadow.store.string + end, toPath: other.string + end)
        }
        try queue.close()
        let place = ShadowPlace(of: other, stateDirectory: shadow.directory.path.appending("state"))
        let follower = try RowFollower(other, place.takeSlot(epoch: nil), limit: .max, within: .seconds(1))
        #expect(try follower.advance(comparesAll: true) == .current)
        #expect(follower.shadow.lastStep == 0)
    }

    /// A log that is held open has the same salt as the one that has its name now, and ends before it.
    @Test func readsALogThatCameToTheNameOfAnother() throws {
        let shadow = try FollowedShadow(Self.note)
        let queue = try DatabaseQueue(path: shadow.store.string)
        func write(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try write("INSERT INTO note VALUES (2, 'b')")
        let log = shadow.store.string + "-wal"
        let files = FileManager.default
        try files.linkItem(atPath: log, toPath: log + ".writer")
        try files.copyItem(atPath: log, toPath: log + ".short")
        #expect(rename(log + ".short", log) == 0)
        _ = try shadow.steps()
        try write("INSERT INTO note VALUES (3, 'c')")
        #expect(try shadow.follower?.advance(comparesAll: false) == .busy)
        #expect(rename(log + ".writer", log) == 0)
        #expect(try shadow.steps() == [.init(kind: .net, rows: ["3: none > 3,'c'"])])
        try queue.close()
    }

    @Test func keepsItsFilesToTheUser() throws {
        let shadow = try FollowedShadow(Self.note)
        _ = try shadow.steps()
        let directory = try Directory(shadow.place.path.appending("0"))
        #expect(try directory.status().permissions == 0o700)
        for name in try directory.names() { #expect(try directory.status(name)?.permissions == 0o600) }
        #expect(try Directory(shadow.directory.path).names().map(\.string).sorted() == ["s.db", "state"])
    }

    /// What another program has put there isn't a copy of anything.
    @Test func removesItsOwnFilesAlone() throws {
        let scratch = try TemporaryDirectory()
        let place = ShadowPlace(of: "/store/Notes.sqlite", stateDirectory: scratch.path)
        let slot = try place.takeSlot(epoch: nil).directory
        for name: FilePath.Component in ["state", "pages", "sums", "redo", "log-0000000000000001", "theirs"] {
            try DurableFile.write([1], as: name, in: slot, mode: 0o600)
        }
        try Directory(place.path).makeDirectory("other", mode: 0o700)
        let error = #expect(throws: SystemError.self) { _ = try place.removeAll() }
        #expect(error?.errno == .directoryNotEmpty)
        #expect(try slot.names() == ["theirs"])
        try slot.removeFile("theirs")
        #expect(try place.removeAll().usedCount == 0)
        #expect(try Directory(place.path).names() == ["other"])
    }

    @Test func removesNoCopyThatIsInUse() throws {
        let scratch = try TemporaryDirectory()
        let place = ShadowPlace(of: "/store/Notes.sqlite", stateDirectory: scratch.path)
        let slot = try place.takeSlot(epoch: nil)
        try DurableFile.write([1], as: "pages", in: slot.directory, mode: 0o600)
        #expect(try place.removeAll().usedCount == 1)
        #expect(try slot.directory.names().contains("pages"))
    }

    @Test func copiesNoLargeStoreUnasked() throws {
        let shadow = try FollowedShadow(Self.note)
        let other = ShadowPlace(of: shadow.store, stateDirectory: shadow.directory.path.appending("other"))
        let reflinks = try Directory(shadow.directory.path).fileSystem().name
        try #require(!["xfs", "btrfs"].contains(reflinks))
        #expect(throws: RowShadowError.self) {
            try RowFollower(shadow.store, other.takeSlot(epoch: nil), limit: 100, within: .ample)
        }
    }

    /// A copy counts without a comparison only if nothing was written while it was made.
    @Test(arguments: ["wal", "delete"]) func confirmsACopyOfOneState(_ mode: String) throws {
        let shadow = try FollowedShadow(Self.note, mode: mode)
        let queue = try DatabaseQueue(path: shadow.store.string)
        func write(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try write("INSERT INTO note VALUES (3, zeroblob(3000000)), (4, hex(randomblob(9000)))")
        let (name, place) = (try #require(StoreName("s.db")), shadow.directory.path.appending("other"))
        let slot = try ShadowPlace(of: shadow.store, stateDirectory: place).takeSlot(epoch: nil)
        for isWritten in [false, true] {
            let files = try #require(try StoreFiles.current(shadow.directory.path, name, unless: nil))
            let view = try #require(try StoreView(files, path: shadow.store, hasExactTimes: true))
            let copy = try RowShadow(slot, of: shadow.store)
            try copy.fill(from: view, of: shadow.store, files.identity, limit: .max) {
                if isWritten { try write("UPDATE note SET text = 'x'; PRAGMA wal_checkpoint") }
            }
            #expect(try view.isConfirmed() == !isWritten)
            guard !isWritten else { continue }
            try copy.begin()
            try copy.verify()
            try write("PRAGMA wal_checkpoint(TRUNCATE)")
            #expect(try Data(contentsOf: copy.pagesPath.url) == Data(contentsOf: shadow.store.url))
        }
    }

    @Test func tellsAStoreThatWasCopiedOver() throws {
        let shadow = try FollowedShadow(Self.note)
        let copy = try Data(contentsOf: shadow.store.url)
        try shadow.write("UPDATE note SET text = 'b'")
        _ = try shadow.steps()
        let file = try FileHandle(forWritingTo: shadow.store.url)
        try file.write(contentsOf: copy)
        try file.truncate(atOffset: UInt64(copy.count))
        #expect(try shadow.steps() == [.init(kind: .net, rows: ["1: 1,'b' > 1,'a'"])])
    }

    /// Under a column's collation a row that came may have the key of one that is gone, which so comes first.
    @Test func pairsRowsWithoutRowidsByTheirKeys() throws {
        let shadow = try FollowedShadow(
            """
            CREATE TABLE word (n, lang, text COLLATE NOCASE, PRIMARY KEY (text, lang)) WITHOUT ROWID;
            INSERT INTO word VALUES (1, 'en', 'a'), (2, 'en', 'b'), (3, 'en', 'c'), (4, 'en', hex(zeroblob(2000)));
            """)
        try shadow.write(
            """
            BEGIN;
            UPDATE word SET n = 9 WHERE text = 'a';
            DELETE FROM word WHERE text = 'b';
            UPDATE word SET text = 'C' WHERE text = 'c';
            INSERT INTO word VALUES (5, 'en', 'd');
            COMMIT;
            """)
        #expect(
            try shadow.steps().flatMap(\.rows) == [
                "0: 2,'en','b' > none", "0: 3,'en','c' > none", "0: 1,'en','a' > 9,'en','a'",
                "0: none > 3,'en','C'", "0: none > 5,'en','d'",
            ])
        try shadow.write(
            "BEGIN; ALTER TABLE word ADD COLUMN more DEFAULT 'x'; UPDATE word SET n = 10 WHERE n IN (9, 4); COMMIT")
        let key = String(repeating: "0", count: 4000)
        #expect(
            try shadow.steps().flatMap(\.rows) == [
                "0: 4,'en','\(key)' > 10,'en','\(key)','x'", "0: 9,'en','a' > 10,'en','a','x'",
            ])
    }

    /// `DROP COLUMN` writes a whole number in a REAL column as a real, and `UPDATE` writes it as an integer.
    @Test func pairsKeysByTheirValues() throws {
        let shadow = try FollowedShadow(
            """
            CREATE TABLE a (c0 REAL, c1, c3 INT, x, PRIMARY KEY (c0, c3)) WITHOUT ROWID;
            INSERT INTO a VALUES (0, 1, 107, 1), (1, 2, 5, 1), (0.5, 4, 5, 1), (7, 1, x'31', 2);
            """)
        _ = try shadow.steps()
        try shadow.write("ALTER TABLE a DROP COLUMN x")
        #expect(try shadow.steps().flatMap(\.rows).allSatisfy { !$0.contains("none") })
        try shadow.write("UPDATE a SET c1 = 5")
        #expect(
            try shadow.steps().flatMap(\.rows) == [
                "0: 0.0,1,107 > 0.0,5,107", "0: 0.5,4,5 > 0.5,5,5", "0: 1.0,2,5 > 1.0,5,5", "0: 7.0,1,x1 > 7.0,5,x1",
            ])
    }

    /// A record has such a column twice too.
    @Test func pairsRowsByAKeyThatHasAColumnTwice() throws {
        let shadow = try FollowedShadow(
            """
            CREATE TABLE t (a, b REAL, v, PRIMARY KEY (a COLLATE RTRIM DESC, a, b)) WITHOUT ROWID;
            INSERT INTO t VALUES ('x', 1, 1), ('y', 0.5, 1);
            """)
        _ = try shadow.steps()
        try shadow.write("UPDATE t SET v = 2")
        let rows = try shadow.steps().flatMap(\.rows)
        #expect(rows.sorted() == ["0: 'x',1.0,1 > 'x',1.0,2", "0: 'y',0.5,1 > 'y',0.5,2"])
    }
}

extension FilePath {
    var url: URL { URL(fileURLWithPath: string) }
}
