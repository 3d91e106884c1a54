import CoreDataStore
import ManagedObjectModels
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// What a mapping model writes is checked while it is written, and afterwards only if something was wrong.
struct WrittenValueTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// Values of all kinds that a column can hold, as SQL.
    private static let values = [
        "NULL", "0", "1", "-1", "9223372036854775807", "-9223372036854775808", "9007199254740993", "0.0", "-0.0", "1.0",
        "1.5", "-1.5", "1e18", "9.223372036854775807e18", "9.3e18", "-9.3e18", "1e300", "9e999", "-9e999", "1e-310",
        "''", "'0'",
        "'12'", "'1.5'", "'12abc'", "'abc'", "' 7 '", "'0x10'", "'inf'", "'é'", "'a' || char(0) || 'b'", "x''", "x'00'",
        "x'31'", "x'FF'", "zeroblob(100)", "CAST(x'FFFE' AS TEXT)", "CAST(x'' AS TEXT)", "printf('%.*c', 5000, 'x')",
        "randomblob(5000)",
    ]
    private static let affinities = ["INTEGER", "FLOAT", "DECIMAL", "VARCHAR", "BLOB", "TIMESTAMP", ""]
    private static let types: [AttributeType] = [
        .integer16, .integer32, .integer64, .boolean, .decimal, .double, .float, .date, .string, .uri, .uuid,
        .binaryData, .transformable,
    ]

    /// The conditions as they were before they became faster.
    private static func plainMismatch(_ type: AttributeType, _ column: String) -> String {
        switch type {
        case .integer16, .integer32, .integer64, .boolean: "\(column) >= '' OR \(column) <> CAST(\(column) AS INTEGER)"
        case .decimal, .double, .float, .date: "\(column) >= ''"
        case .string, .uri: "typeof(\(column)) NOT IN ('text', 'null')"
        default: "typeof(\(column)) NOT IN ('blob', 'null')"
        }
    }

    @Test(arguments: affinities)
    func findsTheSameWrongTypesAsAPlainCondition(_ affinity: String) throws {
        let store = try StoreWriter(directory.path.appending("Values.sqlite"), creating: true)
        try store.execute("CREATE TABLE v (c \(affinity), text)")
        for value in Self.values { try store.execute("INSERT INTO v VALUES (\(value), ?)", [.text(value)]) }
        for type in Self.types {
            let plain = "coalesce(\(Self.plainMismatch(type, "c")), 0)"
            let condition = try #require(type.mismatch(of: "c"))
            let different = try store.text(
                "SELECT text FROM v WHERE coalesce(\(condition), 0) IS NOT \(plain) LIMIT 1")
            #expect(different == nil, "\(type) in a column \(affinity)")
        }
    }

    /// SQLite may check a value before or after it converts it to the column's type.
    @Test(arguments: affinities)
    func marksEachValueThatAFinishedTableWouldBeRefusedFor(_ affinity: String) throws {
        let store = try StoreWriter(directory.path.appending("Marked.sqlite"), creating: true)
        try store.execute("PRAGMA synchronous = OFF")
        var isMarked = false
        try store.addFunction("mark", arguments: 0, isDeterministic: false) { _ in
            isMarked = true
            return .integer(1)
        }
        // A text is only ever written to a column of texts.
        for type in Self.types where affinity == "VARCHAR" || !["String", "URI"].contains(type.name) {
            let condition = try #require(type.mismatch(ofWritten: "c"))
            try store.execute("DROP TABLE IF EXISTS v")
            try store.execute("CREATE TABLE v (c \(affinity), CHECK (CASE WHEN \(condition) THEN mark() ELSE 1 END))")
            for value in Self.values {
                isMarked = false
                try store.execute("INSERT INTO v SELECT \(value)")
                let isWrong = try store.integer("SELECT coalesce(\(Self.plainMismatch(type, "c")), 0) FROM v") == 1
                #expect(isMarked || !isWrong, "\(value) as \(type) in a column \(affinity)")
                try store.execute("DELETE FROM v")
            }
        }
    }

    /// Objects whose text and count are each of the values, as far as the columns' types allow it.
    private static let allValues =
        "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTEXT, ZCOUNT) VALUES "
        + values.enumerated().map { "(\($0 + 1),1,1,\($1),3)" }.joined(separator: ",")

    /// An expression's value isn't checked if its storage class is known. It must be one of the attribute's type.
    @Test(arguments: ["count + 1", "count * 0.5", "count - text", "text / count", "text * text", "text - text"])
    func storesNumbersWhateverTheOlderColumnsHold(_ expression: String) throws {
        let store = try migrated(
            Self.allValues,
            by:
                "entities:\n  - from: Note\n    to: Note\n    attributes:\n      text: ~\n      number: \(expression)\n",
            number: true)
        #expect(
            try store.rows("SELECT count(*), sum(typeof(ZNUMBER) IN ('integer', 'real', 'null')) FROM ZNOTE") == [
                "\(Self.values.count)|\(Self.values.count)"
            ])
    }

    @Test func storesTextsWhateverTheOlderColumnsHold() throws {
        let store = try migrated(
            Self.allValues,
            by: "entities:\n  - from: Note\n    to: Note\n    attributes:\n"
                + "      text: FUNCTION($source.text, \"stringByAppendingString:\", $source.text)\n")
        #expect(
            try store.rows("SELECT count(*), sum(typeof(ZTEXT) IN ('text', 'null')) FROM ZNOTE") == [
                "\(Self.values.count)|\(Self.values.count)"
            ])
    }

    /// Objects of several entities share a table, and each has its own rules.
    @Test(arguments: [
        ("Cat", "'x'", true), ("Cat", "NULL", true), ("Cat", "9", false), ("Dog", "NULL", false), ("Dog", "'x'", true),
        ("Dog", "5", false),
    ])
    func checksAnObjectByItsOwnEntity(_ entity: String, _ value: String, isRefused: Bool) throws {
        let animals = try model(
            "<entity name='Animal' isAbstract='YES'/>"
                + "<entity name='Cat' parentEntity='Animal'><attribute name='lives' attributeType='Integer 16'/></entity>"
                + "<entity name='Dog' parentEntity='Animal'>"
                + "<attribute name='bones' optional='YES' attributeType='Integer 16'/></entity>")
        let number = StoreLayout(animals).numbers.number(of: entity)
        let path = try MigratedStore.make(
            animals, in: directory,
            [
                "INSERT INTO ZANIMAL (Z_PK, Z_ENT, Z_OPT, \(entity == "Cat" ? "ZLIVES" : "ZBONES")) "
                    + "VALUES (1,\(number),1,\(value))"
            ])
        let mapping = try YAMLMappingReader.read(
            Array("mapping: 1\nentities:\n  - {from: Cat, to: Cat}\n  - {from: Dog, to: Dog}\n".utf8))
        let found = try? MigratedStore(mapping, path, from: animals, to: animals, in: directory)
        #expect((found == nil) == isRefused)
    }

    private func migrated(
        _ rows: String, by mapping: String, mandatory: Bool = false, number: Bool = false
    ) throws -> MigratedStore {
        let directory = try TemporaryDirectory()
        let old = try model(
            "<entity name='Note'><attribute name='text' optional='YES' attributeType='String'/>"
                + "<attribute name='count' optional='YES' attributeType='Integer 64'/></entity>")
        let new = try model(
            "<entity name='Note'><attribute name='text' optional='\(mandatory ? "NO" : "YES")' attributeType='String'/>"
                + "<attribute name='count' optional='YES' attributeType='Integer 64'/>"
                + (number ? "<attribute name='number' optional='YES' attributeType='Double'/>" : "") + "</entity>")
        let path = try MigratedStore.make(old, in: directory, [rows])
        let read = try YAMLMappingReader.read(Array(("mapping: 1\n" + mapping).utf8))
        return try MigratedStore(read, path, from: old, to: new, in: directory)
    }

    private static let plain = "entities:\n  - from: Note\n    to: Note\n"
    private static let row = "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTEXT, ZCOUNT) VALUES "

    @Test func leavesTheTablesAsCoreDataCreatesThem() throws {
        let store = try migrated(Self.row + "(1,1,1,'a',1)", by: Self.plain)
        #expect(try store.rows("SELECT ZTEXT, ZCOUNT FROM ZNOTE") == ["a|1"])
        let creation = try #require(try store.row("SELECT sql FROM sqlite_schema WHERE name = 'ZNOTE'"))
        #expect(
            creation
                == "CREATE TABLE ZNOTE ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, "
                + "ZCOUNT INTEGER, ZTEXT VARCHAR )"
        )
        #expect(try store.rows("SELECT name FROM sqlite_schema WHERE sql LIKE '%gs_%' OR sql LIKE '%CHECK%'") == [])
    }

    @Test(arguments: [
        ("(1,1,1,'a',1),(2,1,1,x'00',2)", "Note.text: its value is not of type String (1 object)"),
        ("(1,1,1,'a','many'),(2,1,1,'b',x'01')", "Note.count: its value is not of type Integer 64 (2 objects)"),
        ("(1,1,1,'a',1.5)", "Note.count: its value is not of type Integer 64 (1 object)"),
    ])
    func refusesValuesOfAnotherType(_ values: String, _ message: String) throws {
        let error = #expect(throws: MigrationError.self) { try migrated(Self.row + values, by: Self.plain) }
        #expect(error?.message.contains(message) == true, "\(error?.message ?? "")")
    }

    @Test func refusesAMissingMandatoryValue() throws {
        let error = #expect(throws: MigrationError.self) {
            try migrated(Self.row + "(1,1,1,'a',1),(2,1,1,NULL,1)", by: Self.plain, mandatory: true)
        }
        #expect(error?.code == CoreDataError.migration)
        #expect(error?.message.contains("Note.text: it is mandatory but has no value (1 object)") == true)
    }

    /// The mapping model's own statements may write anything.
    @Test func checksWhatTheLastStepsWrite() throws {
        #expect(throws: MigrationError.self) {
            try migrated(
                Self.row + "(1,1,1,'a',1)", by: Self.plain + "after:\n  - sql: UPDATE ZNOTE SET ZCOUNT = 'x'\n")
        }
    }
}
