import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// Objects and values that are there, and that the newer version has no place for: they are gone afterwards, and whoever
/// migrates with a wrong model should hear of it.
struct LostValues {
    private let store: StoreWriter
    private let succession: ModelSuccession

    /// A column that some entities' objects lose.
    private struct Candidate {
        let property: String
        /// Where it has a value, as SQL says it.
        let condition: String
    }

    init(_ store: StoreWriter, _ succession: ModelSuccession) {
        self.store = store
        self.succession = succession
    }

    /// A line for each entity and property that loses something.
    func notes() throws -> [String] {
        var lost: Set<String> = []
        for table in succession.source.tables { lost.formUnion(try properties(lostBy: table)) }
        var notes: [String] = []
        for entity in succession.source.numbers.entities {
            if let note = try removal(of: entity.name) { notes.append(note) }
            for property in entity.declaredProperties where lost.contains(entity.name + "." + property.name) {
                notes.append("\(entity.name).\(property.name) is not stored by the newer model: its values are removed")
            }
        }
        return notes
    }

    private func removal(of entity: String) throws -> String? {
        guard succession.successors[entity] == nil, let table = succession.source.table(of: entity) else { return nil }
        let number = succession.source.numbers.number(of: entity)
        let count = try store.integer("SELECT count(*) FROM \(table.name.sqlName) WHERE Z_ENT = \(number)") ?? 0
        return count > 0 ? "\(entity) is not in the newer model: \(count) objects are removed" : nil
    }

    // MARK: Values

    /// SQLite takes a thousand terms in one expression.
    private static let termsAtOnce = 250

    private func properties(lostBy table: TableLayout) throws -> [String] {
        let all = candidates(of: table)
        return try stride(from: 0, to: all.count, by: Self.termsAtOnce).flatMap { start in
            try found(Array(all[start..<min(start + Self.termsAtOnce, all.count)]), in: table)
        }
    }

    /// In one pass over the rows, which ends when all have been found.
    private func found(_ candidates: [Candidate], in table: TableLayout) throws -> [String] {
        var left = candidates
        var found: [String] = []
        var key = Int64.min
        while !left.isEmpty {
            let conditions = left.map(\.condition)
            let row = try store.prepare(
                "SELECT Z_PK, \(conditions.joined(separator: ", ")) FROM \(table.name.sqlName) NOT INDEXED "
                    + "WHERE Z_PK > ? AND (\(conditions.joined(separator: " OR "))) ORDER BY Z_PK LIMIT 1",
                [.integer(key)])
            guard try row.step() else { break }
            key = row.integer(0)
            let hits = left.indices.filter { row.integer(Int32(1 + $0)) == 1 }
            found += hits.map { left[$0].property }
            for index in hits.reversed() { left.remove(at: index) }
        }
        return found
    }

    private func candidates(of table: TableLayout) -> [Candidate] {
        let members = succession.source.numbers.family(of: table.rootEntity)
        let entities = members.compactMap { succession.source.model.entity(named: $0) }
        return entities.flatMap { entity in
            entity.declaredProperties.compactMap { candidate($0.name, of: entity) }
        }
    }

    private func candidate(_ property: String, of entity: EntityDescription) -> Candidate? {
        guard let column = succession.source.column(of: property, of: entity.name), !isDerived(property, entity) else {
            return nil
        }
        let losing = succession.source.numbers.family(of: entity.name).filter { member in
            succession.successors[member].map { !keeps(property, $0) } ?? false
        }
        guard !losing.isEmpty else { return nil }
        let numbers = losing.map(succession.source.numbers.number).sorted()
        return Candidate(
            property: entity.name + "." + property,
            condition: "(\(column.name.sqlName) IS NOT NULL AND Z_ENT IN (\(numbers.list)))")
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
