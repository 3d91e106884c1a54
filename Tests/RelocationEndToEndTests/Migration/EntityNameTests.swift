import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// After an entity was renamed, `Z_PRIMARYKEY` keeps its old name, as Core Data leaves it. All output and all filters
/// use the name that the store's own model has for the entity's number.
@Suite(.timeLimit(.minutes(60))) struct EntityNameTests {
    private static let history = """
        CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTIMESTAMP TIMESTAMP);
        CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER,
            ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB);
        INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, 0), (16002, 'TRANSACTION', 0, 0);
        """

    /// Returns SQL that inserts an object of the second entity, and its change.
    private static func insertion(_ number: Int) -> String {
        """
        BEGIN; INSERT INTO ATRANSACTION VALUES (\(number), 16002, 1, 7.1e8);
        INSERT INTO ZBASE (Z_PK, Z_ENT, Z_OPT) VALUES (\(number), 2, 1);
        INSERT INTO ACHANGE VALUES (\(number), 16001, NULL, 0, 2, \(number), \(number), NULL); COMMIT
        """
    }

    /// Creates a store in the group and renames its entity Car to Truck by a migration.
    private func migrated(_ places: Places) throws -> FilePath {
        let base = "<entity name='Base'><attribute name='x' optional='YES' attributeType='String'/></entity>"
        let model = try ModelBundle.make(
            in: places.scratch("models"),
            [
                ("Notes", base + "<entity name='Car' parentEntity='Base'/>"),
                ("Notes 2", base + "<entity name='Truck' parentEntity='Base' elementID='Car'/>"),
            ])
        let store = places.group.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Notes").status == 0)
        try sqlite(store, Self.history + Self.insertion(1))
        let done = try groupstore("migrate", Word(store), "--model", Word(model))
        #expect(done.status == 0, "\(done.errors)")
        #expect(try sqlite(store, "SELECT Z_NAME FROM Z_PRIMARYKEY WHERE Z_ENT = 2").trimmed == "Car")
        return store
    }

    @Test func inspectAndChangesUseTheModelsName() throws {
        let places = try Places()
        let store = try migrated(places)
        let entities = try groupstore("inspect", Word(store), "--json").objects.filter { $0.type == "entity" }
        #expect(entities.prefix(2).map { $0.string("name") } == ["Base", "Truck"])
        #expect(entities[1].integer("number") == 2 && entities[1].integer("objects") == 1)
        #expect(entities[1].string("hash") != nil && !entities.contains { $0.string("name") == "Car" })
        func changes(_ entity: Word) throws -> [JSONObject] {
            try groupstore("changes", Word(store), "--json", "--entities", entity).objects.filter { $0.type == "row" }
        }
        #expect(try changes("Truck").map { $0.string("entity") } == ["Truck"])
        #expect(try changes("Car").isEmpty)
    }

    @Test func filtersByTheModelsName() throws {
        let places = try Places()
        let store = try migrated(places)
        try sqlite(store, "PRAGMA journal_mode = WAL")
        let writer = try sqliteShell(store)
        let agent = try AgentProcess(places, legacy: [places.legacy.appending("Notes.sqlite")])
        let name = "\(AgentProcess.group)/Notes.sqlite"
        let connection = try agent.connect()
        try connection.send([
            "id": 1, "op": "subscribe", "store": .string(name), "entities": ["Truck"], "rows": true,
        ])
        #expect(try connection.next { $0["id"] == 1 }.bool("history") == true)
        var changes: [JSONObject] = []
        for number in 2...4 {
            try writer.execute(Self.insertion(number))
            try connection.send(["id": .integer(Int64(number)), "op": "sync", "store": .string(name)])
            _ = try connection.next { object in
                if object.type == "change" { changes += object.objects("rows") }
                return object["id"] == .integer(Int64(number))
            }
        }
        #expect(changes.contains { $0["key"] == 4 && $0.string("entity") == "Truck" }, "\(changes.map(\.text))")
        try connection.send(["id": 9, "op": "changes", "store": .string(name), "entities": ["Truck"]])
        #expect(try connection.next { $0["id"] == 9 && $0.bool("ok") != nil }.integer("changes") == 4)
    }
}
