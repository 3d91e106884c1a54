import GRDB
import LinuxSystem
import PersistentStore
import SystemPackage

/// What the plan asks of a store's content.
enum StoreContents {
    /// SQLite can't read it.
    struct Unreadable: Error, CustomStringConvertible {
        let description: String
    }

    /// Whether no table has a row; nil when `countingRows` is false, and then only the schema is read.
    static func isSchemaOnly(_ store: StoreSighting, countingRows: Bool) throws -> Bool? { nil }

    static func areEqual(_ one: StoreSighting, _ other: StoreSighting) throws -> Bool { false }

    static func storeUUID(_ store: StoreSighting) throws -> String? { nil }

    struct Summary {
        var rows: [(table: String, count: Int64)] = []
        var storeUUID: String?
        var modelIdentifiers: [String] = []
    }

    static func summary(_ store: StoreSighting) throws -> Summary { Summary() }

    static func publishedHash(_ store: StoreSighting) throws -> String { "" }
}
