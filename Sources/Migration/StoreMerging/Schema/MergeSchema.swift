import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteStore
import StoreRelocation

/// The content that two stores of the same schema have to merge.
struct MergeSchema {
    /// A one-to-one relationship that both objects store.
    struct Pair {
        let table: Int
        let column: String
        let entities: [Int64]
        let otherTable: Int
        let otherColumn: String
        let isMandatory: Bool
        let name: String
    }

    var tables: [MergeTable] = []
    var joinTables: [MergeJoinTable] = []
    var pairs: [Pair] = []
    var virtualTables: [MergedVirtualTable] = []
    /// The layout of a Core Data store.
    var layout: StoreLayout?
    /// The tables in the order in which they can be matched.
    var order: [Int] = []

    func index(of table: String) -> Int? {
        tables.firstIndex { DatabaseSchema.key(of: $0.name) == DatabaseSchema.key(of: table) }
    }
}

extension RelocationFailure {
    static func merge(_ code: String, _ message: String, remedy: String) -> RelocationFailure {
        RelocationFailure(.badData, code: code, message, remedy: remedy)
    }

    static func schemasDiffer(_ difference: String) -> RelocationFailure {
        merge(
            "schemas_differ", "the schemas of the two stores differ: \(PrintableText(difference))",
            remedy: "open the older store once with the program that wrote the newer one, then try again")
    }

    static func mergeUnsupported(_ reason: String) -> RelocationFailure {
        merge(
            "merge_unsupported", PrintableText(reason).description,
            remedy: "choose --on-conflict keep-group or keep-legacy; the other store goes to the archive")
    }
}
