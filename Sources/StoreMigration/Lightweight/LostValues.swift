import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// Objects and values that are there, and that the newer version has no place for: they are gone afterwards, and whoever
/// migrates with a wrong model should hear of it.
struct LostValues {
    private let store: StoreWriter
    private let succession: ModelSuccession

    init(_ store: StoreWriter, _ succession: ModelSuccession) {
        self.store = store
        self.succession = succession
    }

    /// A line for each entity and property that loses something.
    func notes() throws -> [String] {
        var notes: [String] = []
        for entity in succession.source.numbers.entities {
            guard let table = succession.source.table(of: entity.name) else { continue }
            if succession.successors[entity.name] == nil {
                let number = succession.source.numbers.number(of: entity.name)
                let count = try store.integer("SELECT count(*) FROM \(table.name.sqlName) WHERE Z_ENT = \(number)")
                if let count, count > 0 {
                    notes.append("\(entity.name) is not in the newer model: \(count) objects are removed")
                }
            }
            for property in entity.declaredProperties where try loses(property.name, of: entity, in: table) {
                notes.append("\(entity.name).\(property.name) is not stored by the newer model: its values are removed")
            }
        }
        return notes
    }

    private func loses(_ property: String, of entity: EntityDescription, in table: TableLayout) throws -> Bool {
        guard let column = succession.source.column(of: property, of: entity.name), !isDerived(property, entity) else {
            return false
        }
        let losing = succession.source.numbers.family(of: entity.name).filter { member in
            succession.successors[member].map { !keeps(property, $0) } ?? false
        }
        guard !losing.isEmpty else { return false }
        let numbers = losing.map(succession.source.numbers.number).sorted()
        let found = try store.integer(
            "SELECT EXISTS (SELECT 1 FROM \(table.name.sqlName) WHERE \(column.name.sqlName) IS NOT NULL "
                + "AND Z_ENT IN (\(numbers.list)))")
        return found == 1
    }

    /// Whether the newer entity stores what the older one's property has.
    private func keeps(_ property: String, _ entity: String) -> Bool {
        guard let new = succession.destination.model.entity(named: entity) else { return false }
        return succession.destination.model.properties(of: new).contains { candidate in
            guard !candidate.isTransient else { return false }
            return switch candidate {
            case .attribute: succession.attribute(candidate.name, of: entity)?.attribute.name == property
            case .relationship: succession.relationship(candidate.name, of: entity)?.relationship.name == property
            case .fetched: false
            }
        }
    }

    private func isDerived(_ property: String, _ entity: EntityDescription) -> Bool {
        entity.attributes.contains { $0.name == property && $0.derivation != nil }
    }
}
