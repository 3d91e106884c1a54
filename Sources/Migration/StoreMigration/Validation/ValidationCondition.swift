import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// A rule of the model as an SQL condition that is true for each row that breaks it.
struct ValidationCondition {
    /// The alias of the rows.
    static let alias = "t"

    let property: String
    let condition: String
    /// The same rule for a row that is being written; nil if it depends on other rows.
    var written: WrittenRule?
    /// Core Data's error code.
    let code: Int
    let message: String
    let remedy: String
}

/// The rules that Core Data checks when it saves an object of an entity.
struct ObjectChecks {
    private let layout: StoreLayout

    init(_ layout: StoreLayout) { self.layout = layout }

    /// Returns the checks of mandatory properties, types and numbers of related objects.
    func structure(of entity: EntityDescription) -> [ValidationCondition] {
        layout.model.properties(of: entity).flatMap { property -> [ValidationCondition] in
            switch property {
            case .attribute(let attribute): check(attribute, of: entity)
            case .relationship(let relationship): check(relationship, of: entity)
            case .fetched: []
            }
        }
    }

    private func check(_ attribute: AttributeDescription, of entity: EntityDescription) -> [ValidationCondition] {
        guard !attribute.isTransient, attribute.derivation == nil,
            let name = layout.column(of: attribute.name, of: entity.name)?.name
        else { return [] }
        let column = ValidationCondition.alias + "." + name.sqlName
        let written = name.sqlName
        var found: [ValidationCondition] = []
        if !attribute.isOptional {
            found.append(
                ValidationCondition(
                    property: attribute.name, condition: "\(column) IS NULL",
                    written: WrittenRule(
                        column: name, classes: .all.subtracting(.null), condition: "\(written) IS NULL"),
                    code: CoreDataError.missingMandatoryProperty, message: "it is mandatory but has no value",
                    remedy: "map a value to it, make it optional, or exclude such objects with a filter"))
        }
        if let condition = attribute.type.mismatch(of: column) {
            found.append(
                ValidationCondition(
                    property: attribute.name, condition: condition,
                    written: attribute.type.mismatch(ofWritten: written).map {
                        WrittenRule(column: name, classes: attribute.type.storageClasses, condition: $0)
                    },
                    code: CoreDataError.migration, message: "its value is not of type \(attribute.type.name)",
                    remedy: "convert it with CAST or a policy"))
        }
        return found
    }

    private func check(_ relationship: RelationshipDescription, of entity: EntityDescription) -> [ValidationCondition] {
        guard !relationship.isTransient,
            let link = LinkStorage(of: relationship, declaredFor: entity.name, in: layout)
        else { return [] }
        guard relationship.isToMany else {
            guard relationship.requiresObject, link.owner == "Z_PK" else { return [] }
            return [
                ValidationCondition(
                    property: relationship.name, condition: "t.\(link.target.sqlName) IS NULL",
                    code: CoreDataError.missingMandatoryProperty, message: "it is mandatory but has no object",
                    remedy: "map objects to it, make it optional, or exclude such objects with a filter")
            ]
        }
        let count = "(SELECT count(*) FROM main.\(link.table.sqlName) AS l WHERE l.\(link.owner.sqlName) = t.Z_PK)"
        let least = Int(relationship.minCount)
        var found: [ValidationCondition] = []
        if least > 0 {
            // An optional relationship may be empty whatever its minimum is.
            let nonempty = relationship.isOptional ? " AND \(count) > 0" : ""
            found.append(
                ValidationCondition(
                    property: relationship.name, condition: "\(count) < \(least)\(nonempty)",
                    code: CoreDataError.relationshipLacksMinimumCount,
                    message: "it has fewer than \(Counted(least, "object"))",
                    remedy: "map objects to it, or make it optional"))
        }
        if relationship.maxCount > 1 {
            found.append(
                ValidationCondition(
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
    /// data `typeof` doesn't read the content. `+` keeps the column's affinity from converting what it is compared
    /// with.
    func mismatch(of column: String) -> String? {
        switch self {
        // `|` gives a whole number, or NULL.
        case .integer16, .integer32, .integer64, .boolean: "+\(column) <> (\(column) | 0)"
        case .decimal, .double, .float, .date: "+\(column) >= ''"
        case .string, .uri: "typeof(\(column)) NOT IN ('text', 'null')"
        case .uuid, .binaryData, .transformable: "typeof(\(column)) NOT IN ('blob', 'null')"
        case .undefined, .objectID, .composite: nil
        }
    }

    /// Returns the same condition for a value in memory that is written to a column of the type, for which comparisons
    /// are always faster. A column of texts turns numbers into texts.
    func mismatch(ofWritten column: String) -> String? {
        switch self {
        case .string, .uri: "+\(column) >= x''"
        case .uuid, .binaryData, .transformable: "+\(column) < x''"
        default: mismatch(of: column)
        }
    }
}
