import SQLiteStore

/// A virtual table, and how its rows come into the result.
struct MergedVirtualTable {
    enum Treatment: Equatable {
        /// A full-text index of another table: SQLite rebuilds it.
        case rebuilt
        /// A full-text table with its own content, which other rows may refer to by number.
        case content
        /// A spatial index of Core Data, which is filled again.
        case spatial
        /// Anything else: it must have no rows in the legacy store.
        case other
    }

    let name: String
    let module: String
    let treatment: Treatment
    /// The columns of a full-text table with its own content.
    var columns: [String] = []

    init(_ table: DatabaseSchema.Table, spatialIndexes: Set<String>) {
        name = table.name
        module = table.module ?? "unknown"
        let arguments = VirtualTableModule.arguments(declaredIn: table.creation)
        let content = VirtualTableModule.value(of: "content", in: arguments)
        if spatialIndexes.contains(table.name.lowercased()) {
            treatment = .spatial
        } else if ["fts3", "fts4", "fts5"].contains(module) {
            switch content {
            case nil: treatment = .content
            case ""?: treatment = .other
            default: treatment = .rebuilt
            }
        } else {
            treatment = .other
        }
    }
}
