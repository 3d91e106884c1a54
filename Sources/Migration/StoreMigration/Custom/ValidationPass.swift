import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The third pass: what Core Data validates when it saves. It checks mandatory attributes and relationships, the number
/// of objects in a relationship, and that each value has its attribute's type. It reports all faults, not only the
/// first.
struct ValidationPass {
    private let store: StoreWriter
    private let plan: MappingPlan
    /// True if every value is known to be valid, so that only relationships are checked.
    private let valuesAreValid: Bool

    init(_ store: StoreWriter, _ plan: MappingPlan, valuesAreValid: Bool = false) {
        self.store = store
        self.plan = plan
        self.valuesAreValid = valuesAreValid
    }

    /// Throws `MigrationError` with all faults.
    func validate() throws {
        var findings: [MigrationFinding] = []
        for entity in plan.destination.numbers.entities where !entity.isAbstract {
            findings += try checks(of: entity)
        }
        guard findings.isEmpty else {
            throw MigrationError(
                CoreDataError.migration,
                "the new objects are not valid: "
                    + findings.prefix(3).map { "\($0.entity ?? "").\($0.property ?? ""): \($0.message)" }
                    .joined(separator: "; "),
                remedy: "see the remedy of each finding", findings: findings)
        }
    }

    /// Runs all checks of the entity in one pass over its rows, up to the first that fails, and counts the failures
    /// only then.
    private func checks(of entity: EntityDescription) throws -> [MigrationFinding] {
        guard let table = plan.destination.table(of: entity.name)?.name else { return [] }
        let checks = ObjectChecks(plan.destination).structure(of: entity).filter {
            !valuesAreValid || $0.written == nil
        }
        guard !checks.isEmpty else { return [] }
        let number = SQLiteValue.integer(plan.destination.numbers.number(of: entity.name))
        let any = checks.map { "(\($0.condition))" }.disjunction
        let first = try store.integer(
            "SELECT 1 FROM main.\(table.sqlName) AS t NOT INDEXED WHERE t.Z_ENT = ? AND \(any) LIMIT 1", [number])
        guard first != nil else { return [] }
        let counts = checks.map { "count(*) FILTER (WHERE \($0.condition))" }
        let row = try store.prepare(
            "SELECT \(counts.joined(separator: ", ")) FROM main.\(table.sqlName) AS t NOT INDEXED WHERE t.Z_ENT = ?",
            [number])
        guard try row.step() else { return [] }
        return zip(Int32(0)..., checks).compactMap { column, check in
            let count = row.integer(column)
            guard count > 0 else { return nil }
            return MigrationFinding(
                .error, code: check.code, entity: entity.name, property: check.property,
                "\(check.message) (\(Counted(count, "object")))", remedy: check.remedy)
        }
    }
}
