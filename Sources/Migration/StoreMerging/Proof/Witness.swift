import LinuxSystem
import Glibc
import SQLiteFormat
import SQLiteStore

/// The claim of a merge, in a database of its own, for the proof to check: for each table, the result's row and the
/// state of each legacy row, and the links that were cleared.
struct Witness {
    let session: MergeSession

    init(_ session: MergeSession) { self.session = session }

    func write(to location: StoreLocation) throws {
        _ = try location.directory.open(location.name.database, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        let store = session.store
        try store.execute("ATTACH ?1 AS witness", [.text(location.pathForSQLite.sqliteURI)])
        try store.execute("PRAGMA witness.synchronous = OFF")
        for index in session.schema.tables.indices {
            try store.execute(
                "CREATE TABLE witness.m\(index) (lid INTEGER PRIMARY KEY, gid INTEGER NOT NULL, s INTEGER NOT NULL)")
            try store.execute("INSERT INTO witness.m\(index) SELECT lid, gid, s FROM \(session.map(index))")
            try store.execute("CREATE UNIQUE INDEX witness.i\(index) ON m\(index) (gid)")
        }
        try store.execute("CREATE TABLE witness.cleared (t INTEGER, c TEXT, gid INTEGER, PRIMARY KEY (t, c, gid))")
        try store.execute("INSERT INTO witness.cleared SELECT t, c, gid FROM temp.gs_cleared")
        try store.execute("DETACH witness")
    }
}
