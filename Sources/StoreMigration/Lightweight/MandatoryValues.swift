import CoreDataStore
import ManagedObjectModel
import PersistentStore

/// The check that Core Data makes of a migration in place: mandatory attributes and to-one relationships that are new, or
/// were optional, have a value in each object.
struct MandatoryValues {
    private let store: StoreWriter
    private let succession: ModelSuccession
    private let tables: [TableMigration]

    init(_ store: StoreWriter, _ succession: ModelSuccession, _ tables: [TableMigration]) {
        self.store = store
        self.succession = succession
        self.tables = tables
    }

    /// A column in which some entities' objects must have something.
    private struct Candidate {
        let property: PropertyDescription
        let entity: String
        /// Where there is nothing, as SQL says it.
        let condition: String
    }

    /// SQLite takes a thousand terms in one expression.
    private static let termsAtOnce = 250

    /// Throws `MigrationError` with every property that has no value somewhere.
    func check() throws {
        var findings: [MigrationFinding] = []
        for table in tables where table.isTransformed && !table.numbers.isEmpty {
            findings += try self.findings(in: table.destination, candidates(table))
        }
        guard let first = findings.first else { return }
        throw MigrationError(
            CoreDataError.migration, "Cannot migrate store in-place: \(first.message)",
            remedy: first.remedy, findings: findings)
    }

    private func candidates(_ table: TableMigration) -> [Candidate] {
        table.columns.compactMap { column in
            let (entity, name): (String, String)
            switch column.column.content {
            case .attribute(let owner, let path) where path.count == 1: (entity, name) = (owner, path[0])
            case .reference(let owner, let relationship): (entity, name) = (owner, relationship)
            case .attribute, .referencedEntity, .order: return nil
            }
            guard let declaring = succession.destination.model.entity(named: entity),
                let property = succession.destination.model.property(named: name, of: declaring)
            else { return nil }
            let members = succession.destination.numbers.family(of: entity).filter { isAtRisk(property, of: $0) }
            guard !members.isEmpty else { return nil }
            let numbers = members.map(succession.destination.numbers.number)
            return Candidate(
                property: property, entity: entity,
                condition: "(\(column.column.name.sqlName) IS NULL AND Z_ENT IN (\(numbers.list)))")
        }
    }

    /// Nearly always there is none: one pass over the rows says so. Only where there is one they are counted.
    private func findings(in table: TableLayout, _ candidates: [Candidate]) throws -> [MigrationFinding] {
        var findings: [MigrationFinding] = []
        for start in stride(from: 0, to: candidates.count, by: Self.termsAtOnce) {
            let some = candidates[start..<min(start + Self.termsAtOnce, candidates.count)]
            let any = some.map(\.condition).joined(separator: " OR ")
            let isMissing = try store.integer(
                "SELECT EXISTS (SELECT 1 FROM \(table.name.sqlName) NOT INDEXED WHERE \(any))")
            guard isMissing == 1 else { continue }
            for candidate in some { findings += try finding(candidate, in: table).map { [$0] } ?? [] }
        }
        return findings
    }

    private func finding(_ candidate: Candidate, in table: TableLayout) throws -> MigrationFinding? {
        let count = try store.integer(
            "SELECT count(*) FROM \(table.name.sqlName) NOT INDEXED WHERE \(candidate.condition)")
        guard let count, count > 0 else { return nil }
        let kind = if case .attribute = candidate.property { "attribute" } else { "relationship" }
        let subject = "\(candidate.entity).\(candidate.property.name)"
        return MigrationFinding(
            .error, code: CoreDataError.migration, entity: candidate.entity, property: candidate.property.name,
            "Validation error missing \(kind) values on mandatory destination \(kind): \(subject), in \(count) objects",
            remedy: "give \(subject) a default, make it optional, or set the values before")
    }

    private func isAtRisk(_ property: PropertyDescription, of entity: String) -> Bool {
        guard succession.predecessors[entity] != nil else { return false }
        switch property {
        case .attribute(let attribute):
            // Where there was no value, the default is one.
            guard !attribute.isOptional, attribute.derivation == nil, attribute.defaultLiteral == nil else {
                return false
            }
            return succession.attribute(attribute.name, of: entity)?.attribute.isOptional ?? true
        case .relationship(let relationship):
            guard !relationship.isOptional, !relationship.isToMany else { return false }
            // A new one begins without objects: Core Data lets that pass, and checks when the object is saved.
            return succession.relationship(relationship.name, of: entity)?.relationship.isOptional ?? false
        case .fetched: return false
        }
    }
}
