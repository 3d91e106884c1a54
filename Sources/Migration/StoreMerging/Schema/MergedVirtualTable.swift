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
        let content = arguments.compactMap { argument -> String? in
            let parts = argument.split(separator: "=", maxSplits: 1).map { $0.filter { !$0.isWhitespace } }
            guard parts.count == 2, parts[0].lowercased() == "content" else { return nil }
            return String(parts[1].filter { !"'\"`[]".contains($0) })
        }.first
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
