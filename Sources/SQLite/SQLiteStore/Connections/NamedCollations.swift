import CSQLite
import SystemPackage

/// Collations and functions of another program that statements may name but not use.
///
/// GRDB defines these in each of its connections, so the tables, indexes and triggers of an app that uses GRDB may name
/// them. Statements that read or write other rows of such a store compile only if the names are known.
final class NamedCollations {
    /// True if an order was needed that only the app knows. Then nothing may be committed.
    private(set) var wereUsed = false

    fileprivate static let collations = [
        "swiftCompare", "swiftCaseInsensitiveCompare", "swiftLocalizedCaseInsensitiveCompare", "swiftLocalizedCompare",
        "swiftLocalizedStandardCompare",
    ]

    private static let functions = [
        "swiftCapitalizedString", "swiftLowercaseString", "swiftUppercaseString", "swiftLocalizedCapitalizedString",
        "swiftLocalizedLowercaseString", "swiftLocalizedUppercaseString",
    ]

    private struct Unavailable: Error, CustomStringConvertible {
        let description = "only the store's own program has this function"
    }

    func error(_ path: FilePath) -> StoreError {
        StoreError(code: SQLITE_ERROR, message: "only the store's own program has the collation of a value", path: path)
    }

    fileprivate func define(in connection: SQLiteConnection) throws {
        let context = Unmanaged.passUnretained(self).toOpaque()
        for name in Self.collations {
            let code = sqlite3_create_collation_v2(
                connection.connection, name, SQLITE_UTF8, context,
                { context, _, _, _, _ in
                    if let context {
                        Unmanaged<NamedCollations>.fromOpaque(context).takeUnretainedValue().wereUsed = true
                    }
                    return 0
                }, nil)
            if code != SQLITE_OK { throw connection.error(code) }
        }
        for name in Self.functions {
            try connection.addFunction(name, arguments: 1) { _ in throw Unavailable() }
        }
    }
}

extension StoreConnection {
    /// True for a collation of GRDB's.
    package static func isGRDBs(collation: String) -> Bool {
        NamedCollations.collations.contains { $0.lowercased() == collation.lowercased() }
    }

    /// Lets statements name GRDB's collations and functions. A statement that calls one of the functions fails, and so
    /// does a transaction that compares by one of the collations.
    package func acceptGRDBNames() throws {
        let collations = NamedCollations()
        namedCollations = collations
        try collations.define(in: self)
    }
}
