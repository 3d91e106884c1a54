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
        let unknown = try database.integer(
            "SELECT count(*) FROM (\(objects("home")) EXCEPT \(objects("main")))")
        let count = "SELECT count(*) FROM (\(objects("home")))"
        let own = "SELECT count(*) FROM (\(objects("main"))) WHERE tbl_name NOT GLOB 'GS_*' AND name NOT GLOB 'GS_*'"
        return try unknown == 0 && database.integer(count) == database.integer(own)
            && database.text("PRAGMA home.encoding") == database.text("PRAGMA main.encoding")
    }

    /// Makes `sqlite_sequence`, `user_version` and `application_id` those of the home.
    func copySettings() throws {
        for pragma in ["user_version", "application_id"] {
            let value = try database.integer("PRAGMA home.\(pragma)") ?? 0
            if try database.integer("PRAGMA main.\(pragma)") != value {
                try database.execute("PRAGMA main.\(pragma) = \(value)")
            }
        }
        guard try database.hasTables("sqlite_sequence") else { return }
        let rows = { (schema: String) in "SELECT rowid, name, seq FROM \(schema).sqlite_sequence" }
        let differing = try database.integer(
            """
            SELECT EXISTS (\(rows("home")) EXCEPT \(rows("main"))) OR EXISTS (\(rows("main")) EXCEPT \(rows("home")))
            """)
        guard differing == 1 else { return }
        try database.execute("DELETE FROM main.sqlite_sequence")
        try database.execute("INSERT INTO main.sqlite_sequence (rowid, name, seq) \(rows("home"))")
    }
}
