import MappingModels
import SQLiteStore

/// Counts the older objects that entity mappings' conditions exclude, while they are read to create the new ones.
final class ExcludedObjects {
    private static let function = "gs_excluded_object"

    /// The number of excluded objects, by entity.
    private(set) var counts: [String: Int64] = [:]
    private var entities: [String] = []

    init(_ store: StoreWriter) throws {
        try store.addFunction(Self.function, arguments: 1, isDeterministic: false) { [weak self] values in
            if let self, case .integer(let index) = values[0] { counts[entities[Int(index)], default: 0] += 1 }
            return .integer(0)
        }
    }

    /// Makes a query about the mapping's source rows count those that its condition excludes.
    func count(of plan: EntityMappingPlan, _ rows: inout MappedRows) {
        // The entity's number, and the condition.
        guard let entity = plan.source?.name, rows.conditions.count == 2 else { return }
        entities.append(entity)
        counts[entity] = 0
        // One term, since SQLite may evaluate several in any order.
        rows.conditions = [
            "CASE WHEN \(rows.conditions[0]) THEN CASE WHEN \(rows.conditions[1]) THEN 1 "
                + "ELSE \(Self.function)(\(entities.count - 1)) END ELSE 0 END"
        ]
    }
}
