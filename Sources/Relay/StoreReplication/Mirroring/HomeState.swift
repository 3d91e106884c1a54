import PersistentHistory
import SQLiteStore

/// The part of a home's state that no row of its tables has, read from the shadow of its pages, which is attached to
/// the mirror's connection.
struct HomeState {
    /// The name under which the shadow is attached.
    static let name = "home"

    private let database: ReplicaConnection

    init(_ database: ReplicaConnection) { self.database = database }

    /// The version of the home's schema as SQLite counts it.
    func schemaVersion() throws -> Int64 { try database.integer("PRAGMA home.schema_version") ?? 0 }

    /// Returns true if the mirror's schema is the home's, apart from the history and from statistics.
    func hasSameSchema() throws -> Bool {
        func objects(_ schema: String) -> String {
            "SELECT type, name, tbl_name, sql FROM \(schema).sqlite_schema "
                + "WHERE name NOT GLOB 'sqlite_stat[0-9]*' AND tbl_name NOT GLOB 'sqlite_stat[0-9]*'"
        }
        let tables = try database.prepare("SELECT sql FROM home.sqlite_schema WHERE type = 'table'")
        // The home keeps a history by now.
        while try tables.step() { if tables.text(0).map(HistorySchema.isOwn(statement:)) == true { return false } }
        let own = try HistorySchema.tables(in: database)
        let added = try database.prepare("\(objects("main")) EXCEPT \(objects("home"))")
        while try added.step() {
            let isTrigger =
                added.text(0) == "trigger" && HistorySchema.isOwn(trigger: added.text(1) ?? "", added.text(3) ?? "")
            guard isTrigger || added.text(2).map(own.contains) == true else { return false }
        }
        let missing = "\(objects("home")) EXCEPT \(objects("main"))"
        return try database.integer("SELECT NOT EXISTS (\(missing))") == 1
            && database.text("PRAGMA home.encoding") == database.text("PRAGMA main.encoding")
    }

    private static let pragmas = ["user_version", "application_id"]

    private func sequence(_ schema: String) -> String { "SELECT rowid, name, seq FROM \(schema).sqlite_sequence" }

    /// Returns true if `sqlite_sequence`, `user_version` and `application_id` are those of the home.
    func hasSameSettings() throws -> Bool {
        for pragma in Self.pragmas
        where try database.integer("PRAGMA home.\(pragma)") != database.integer("PRAGMA main.\(pragma)") {
            return false
        }
        guard try database.hasTables("sqlite_sequence") else { return true }
        let (home, main) = (sequence("home"), sequence("main"))
        let differing = "EXISTS (\(home) EXCEPT \(main)) OR EXISTS (\(main) EXCEPT \(home))"
        return try database.integer("SELECT \(differing)") == 0
    }

    /// Makes `sqlite_sequence`, `user_version` and `application_id` those of the home.
    func copySettings() throws {
        for pragma in Self.pragmas {
            try database.execute("PRAGMA main.\(pragma) = \(database.integer("PRAGMA home.\(pragma)") ?? 0)")
        }
        guard try database.hasTables("sqlite_sequence") else { return }
        try database.execute("DELETE FROM main.sqlite_sequence")
        try database.execute("INSERT INTO main.sqlite_sequence (rowid, name, seq) \(sequence("home"))")
    }
}
