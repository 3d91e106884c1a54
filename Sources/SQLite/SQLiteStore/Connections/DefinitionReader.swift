import CSQLite
import SystemPackage

/// A connection to an empty database in memory, which interprets definitions. It opens no file.
final class DefinitionReader: SQLiteConnection {
    /// Runs the statement that defines a table. Throws `StoreError`.
    init(_ creation: String) throws {
        try super.init(opening: ":memory:", of: ":memory:", flags: SQLITE_OPEN_READWRITE)
        try execute(creation)
    }
}
