import SQLiteStore

/// A virtual table of a store, and how a replica gets its content.
struct VirtualTable {
    let name: String
    let module: String

    /// The reason why a replica can't have it; nil if it can.
    var refusal: String? { "a batch doesn't carry tables of the module \(module)" }

    static func all(_ reader: StoreReader) throws -> [VirtualTable] {
        try reader.virtualTableModules().map { VirtualTable(name: $0.table, module: $0.module) }
    }
}
