import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The third pass: what Core Data validates when it saves. It checks mandatory attributes and relationships, the number
/// of objects in a relationship, and that each value has its attribute's type. It reports all faults, not only the
/// first.
struct ValidationPass {
    private let store: StoreWriter
    private let plan: MappingPlan

    init(_ store: StoreWriter, _ plan: MappingPlan) {
        self.store = store
        self.plan = plan
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

    private struct Check {
        let property: String
        /// The SQL condition of rows that fail.
        let condition: String
        let code: Int
        let message: String
        let remedy: String
    }

    /// Runs all checks of the entity in one pass over its rows, up to the first that fails, and counts the failures
    /// only then.
    private func checks(of entity: EntityDescription) throws -> [MigrationFinding] {
        guard let table = plan.destination.table(of: entity.name)?.name else { return [] }
        let properties = plan.destination.model.properties(of: entity)
        let checks = properties.flatMap { check($0, of: entity) }
        guard !checks.isEmpty else { return [] }
        let number = SQLiteValue.integer(plan.destination.numbers.number(of: entity.name))
        let any = checks.map { "(\($0.condition))" }.joined(separator: " OR ")
        let first = try store.integer(
            "SELECT 1 FROM main.\(table.sqlName) AS t NOT INDEXED WHERE t.Z_ENT = ? AND (\(any)) LIMIT 1", [number])
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
                "\(check.message) (\(count) objects)", remedy: check.remedy)
        }
    }

    private func check(_ property: PropertyDescription, of entity: EntityDescription) -> [Check] {
        switch property {
        case .attribute(let attribute): check(attribute, of: entity)
        case .relationship(let relationship): check(relationship, of: entity)
        case .fetched: []
        }
    }

    private func check(_ attribute: AttributeDescription, of entity: EntityDescription) -> [Check] {
        guard !attribute.isTransient, attribute.derivation == nil,
            let name = plan.destination.column(of: attribute.name, of: entity.name)?.name
        else { return [] }
        let column = "t." + name.sqlName
        var found: [Check] = []
        if !attribute.isOptional {
            found.append(
                Check(
                    property: attribute.name, condition: "\(column) IS NULL",
                    code: CoreDataError.missingMandatoryProperty,
                    message: "it is mandatory but has no value",
                    remedy: "map a value to it, make it optional, or exclude such objects with a filter"))
        }
        if let condition = attribute.type.mismatch(of: column) {
            found.append(
                Check(
                    property: attribute.name, condition: condition,
                    code: CoreDataError.migration, message: "its value is not of type \(attribute.type.name)",
                    remedy: "convert it with CAST or a policy"))
        }
        return found
    }

    private func check(_ relationship: RelationshipDescription, of entity: EntityDescription) -> [Check] {
        guard !relationship.isTransient,
            let link = LinkStorage(of: relationship, declaredFor: entity.name, in: plan.destination)
        else { return [] }
        guard relationship.isToMany else {
            guard !relationship.isOptional, link.owner == "Z_PK" else { return [] }
            return [
                Check(
                    property: relationship.name, condition: "t.\(link.target.sqlName) IS NULL",
                    code: CoreDataError.missingMandatoryProperty, message: "it is mandatory but has no object",
                    remedy: "map objects to it, make it optional, or exclude such objects with a filter")
            ]
        }
        let count = "(SELECT count(*) FROM main.\(link.table.sqlName) AS l WHERE l.\(link.owner.sqlName) = t.Z_PK)"
        let least = max(relationship.isOptional ? 0 : 1, Int(relationship.minCount))
        var found: [Check] = []
        if least > 0 {
            // An optional relationship may be empty whatever its minimum is.
            let nonempty = relationship.isOptional ? " AND \(count) > 0" : ""
            found.append(
                Check(
                    property: relationship.name, condition: "\(count) < \(least)\(nonempty)",
                    code: CoreDataError.relationshipLacksMinimumCount, message: "it has fewer than \(least) objects",
                    remedy: "map objects to it, or make it optional"))
        }
        if relationship.maxCount > 1 {
            found.append(
                Check(
                    property: relationship.name, condition: "\(count) > \(relationship.maxCount)",
                    code: CoreDataError.relationshipExceedsMaximumCount,
                    message: "it has more than \(relationship.maxCount) objects", remedy: "map fewer objects to it"))
        }
        return found
    }
}

extension AttributeType {
    /// Returns the SQL condition under which a column holds a value of another type, ignoring NULL; nil if any value
    /// will do. In SQLite's sort order all numbers precede texts, and texts precede data
    /// (https://sqlite.org/datatype3.html#sort_order). For numbers a comparison is faster than `typeof`; for texts and
    /// data `typeof` doesn't read the content.
    fileprivate func mismatch(of column: String) -> String? {
        switch self {
        case .integer16, .integer32, .integer64, .boolean: "\(column) >= '' OR \(column) <> CAST(\(column) AS INTEGER)"
        case .decimal, .double, .float, .date: "\(column) >= ''"
        case .string, .uri: "typeof(\(column)) NOT IN ('text', 'null')"
        case .uuid, .binaryData, .transformable: "typeof(\(column)) NOT IN ('blob', 'null')"
        case .undefined, .objectID, .composite: nil
        }
    }
}
