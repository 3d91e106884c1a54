import FoundationEssentials
import GRDB
import GroupStore
import GroupStoreGRDB
import Synchronization
import SystemPackage
import TestSupport
import Testing

/// What a shared database prints of its statements.
@Suite(.timeLimit(.minutes(60))) struct SQLTraceTests {
    let scratch: TemporaryDirectory
    let store: SharedStore

    init() throws {
        scratch = try TemporaryDirectory()
        store = try SharedStore(
            "Notes.sqlite",
            in: GroupContainer(identifier: "group.example", directory: URL(path: scratch.path)))
    }

    private final class Lines: Sendable {
        private let lines = Mutex<[String]>([])
        var all: [String] { lines.withLock { $0 } }
        @Sendable func add(_ line: String) { lines.withLock { $0.append(line) } }
        /// Returns the lines that contain a text, without their times.
        func with(_ text: String) -> [String] {
            all.filter { $0.contains(text) }.map { line in
                let words = line.split(separator: " ", omittingEmptySubsequences: false)
                return words.enumerated().filter { $0 != 2 || $1 == "trigger" }.map(\.element).joined(separator: " ")
            }
        }
    }

    private func write<Connection>(_ notes: SharedDatabase<Connection>) async throws {
        try await notes.write { database in
            try database.execute(
                sql: """
                    CREATE TABLE note (title TEXT);
                    CREATE TABLE log (title TEXT);
                    CREATE TRIGGER noted AFTER INSERT ON note BEGIN INSERT INTO log VALUES (NEW.title); END
                    """)
            try database.execute(
                sql: "INSERT INTO note (title)\n    VALUES (?)", arguments: ["it's\n new\u{1B}[2J"])
        }
        let titles = try await notes.read {
            try String.fetchAll($0, sql: "SELECT title FROM note WHERE rowid = ?", arguments: [1])
        }
        #expect(titles == ["it's\n new\u{1B}[2J"])
        try await notes.close()
    }

    @Test func printsEachStatementWithItsTime() async throws {
        let lines = Lines()
        try await write(SharedDatabasePool(store, sqlTrace: SQLTrace(.statements, print: lines.add)))
        #expect(
            lines.with("INSERT INTO note") == ["GroupStore: sql: Notes.sqlite: INSERT INTO note (title) VALUES (?)"])
        #expect(
            lines.with("SELECT title FROM") == ["GroupStore: sql: Notes.sqlite: SELECT title FROM note WHERE rowid = ?"]
        )
        #expect(lines.with("trigger").isEmpty)
        let time = lines.all.first { $0.contains("INSERT INTO note") }?.split(separator: " ")[2]
        #expect(time?.wholeMatch(of: /[0-9]+\.[0-9]{6}s/) != nil)
    }

    @Test func printsTriggersFromTheSecondLevel() async throws {
        let lines = Lines()
        try await write(SharedDatabaseQueue(store, sqlTrace: SQLTrace(.triggers, print: lines.add)))
        #expect(lines.with("trigger").contains { $0.hasSuffix("INSERT INTO log VALUES (NEW.title)") })
        #expect(!lines.all.contains { $0.contains("it's") })
    }

    @Test func printsValuesAtTheThirdLevelOnOneLine() async throws {
        let lines = Lines()
        try await write(SharedDatabasePool(store, sqlTrace: SQLTrace(.values, print: lines.add)))
        #expect(
            lines.with("INSERT INTO note") == [
                "GroupStore: sql: Notes.sqlite: INSERT INTO note (title) VALUES ('it''s\\u{a} new\\u{1b}[2J')"
            ])
        #expect(lines.with("rowid = 1").count == 1)
        #expect(lines.all.allSatisfy { !$0.contains("\n") && !$0.contains("\u{1B}") })
    }

    @Test func tracesTheConnectionsThatAreOpenedAfterARelocation() async throws {
        let lines = Lines()
        let notes = try await SharedDatabasePool(store, sqlTrace: SQLTrace(.statements, print: lines.add))
        try await FileCoordinator(in: store.container).coordinate(
            with: [.writingIntent(with: store.groupURL)], deadline: .ample
        ) { _ in lines.add("moved") }
        try await write(notes)
        let moved = try #require(lines.all.firstIndex(of: "moved"))
        #expect(lines.all[moved...].contains { $0.contains("INSERT INTO note") })
    }

    @Test func printsNothingUnlessAsked() async throws {
        let lines = Lines()
        try await write(SharedDatabasePool(store, sqlTrace: SQLTrace(.off, print: lines.add)))
        #expect(lines.all.isEmpty)
        #expect(SQLTrace.environment.level == .off)
    }

    @Test func cutsAVeryLongStatement() async throws {
        let lines = Lines()
        let notes = try await SharedDatabaseQueue(store, sqlTrace: SQLTrace(.values, print: lines.add))
        try await notes.write { database in
            try database.execute(sql: "CREATE TABLE note (title TEXT)")
            try database.execute(
                sql: "INSERT INTO note VALUES (?)", arguments: [String(repeating: "x", count: 1_000_000)])
        }
        try await notes.close()
        let line = try #require(lines.all.first { $0.contains("INSERT INTO note") })
        #expect(line.count < 11_000 && line.hasSuffix("xx… (1000028 characters)"))
    }
}
