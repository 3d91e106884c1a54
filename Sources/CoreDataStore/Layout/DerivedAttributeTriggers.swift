import ManagedObjectModel

/// The triggers by which Core Data keeps a derived attribute up to date that counts a to-many relationship's objects
/// (`pages.@count`), as it writes them. They call functions that only Core Data has. Other derivations' triggers were not
/// seen in a store, and none are made.
package struct DerivedAttributeTriggers: Sendable {
    /// The table and column of the derived value.
    package let table: String
    package let column: String
    package let name: String
    private let entity: String
    private let attribute: String
    private let countedTable: String
    private let reference: String

    package struct Trigger: Equatable, Sendable {
        package let name: String
        package let creation: String
    }

    /// The expression that gives each row's value anew.
    package var value: String {
        "(SELECT IFNULL(COUNT(\(reference)), 0) FROM \(countedTable) WHERE \(reference) = \(table).Z_PK)"
    }

    package var triggers: [Trigger] {
        let prefix = "Z_DA_\(countedTable)_\(entity)_\(attribute)_PARAMETER_"
        return [
            counting(prefix + "INSERT", "AFTER INSERT ON", "NEW", "IFNULL(\(column), 0) + 1"),
            counting(prefix + "UPDATE_INCREMENT", "AFTER UPDATE OF \(reference) ON", "NEW", "\(column) + 1"),
            counting(prefix + "UPDATE_DECREMENT", "AFTER UPDATE OF \(reference) ON", "OLD", "\(column) - 1"),
            counting(prefix + "DELETE", "AFTER DELETE ON", "OLD", "\(column) - 1"),
            source,
        ]
    }

    private func counting(_ name: String, _ event: String, _ row: String, _ value: String) -> Trigger {
        let key = "WHERE Z_PK = \(row).\(reference)"
        return Trigger(
            name: name,
            creation:
                "CREATE TRIGGER \(name) \(event) \(countedTable) FOR EACH ROW WHEN (\(row).\(reference) NOT NULL) "
                + "BEGIN UPDATE \(table) SET \(column) = \(value) \(key); \(call("Updated")) \(key); END")
    }

    private var source: Trigger {
        let name = "Z_DA_\(table)_\(entity)_\(attribute)_SOURCE_INSERT"
        let value = "(SELECT IFNULL(COUNT(\(reference)), 0) FROM \(countedTable) WHERE \(reference) = NEW.Z_PK)"
        return Trigger(
            name: name,
            creation:
                "CREATE TRIGGER \(name) AFTER INSERT ON \(table) FOR EACH ROW BEGIN UPDATE \(table) SET \(column) "
                + "= \(value) WHERE Z_PK = NEW.Z_PK; \(call("InsertUpdated")) WHERE Z_PK = NEW.Z_PK; END")
    }

    private func call(_ kind: String) -> String {
        "SELECT NSCoreDataDATrigger\(kind)AffectedObjectValue('\(table)', Z_ENT, Z_PK, '\(attribute)', \(column)) "
            + "FROM \(table)"
    }

    /// Nil for any other derivation.
    fileprivate init?(_ attribute: AttributeDescription, of entity: EntityDescription, _ layout: StoreLayout) {
        guard let derivation = attribute.derivation, derivation.filteringPredicate == nil,
            let counted = Self.counted(derivation.expression),
            case .relationship(let relationship)? = layout.model.property(named: counted, of: entity),
            relationship.isToMany, let inverse = relationship.inverseName,
            let table = layout.table(of: entity.name),
            let column = layout.column(of: attribute.name, of: entity.name),
            let countedTable = layout.table(of: relationship.destinationEntityName),
            let reference = layout.column(of: inverse, of: relationship.destinationEntityName)
        else { return nil }
        self.table = table.name
        self.column = column.name
        name = entity.name + "." + attribute.name
        self.entity = entity.name
        self.attribute = attribute.name
        self.countedTable = countedTable.name
        self.reference = reference.name
    }

    /// The relationship in `count:(pages)` or `pages.@count`.
    private static func counted(_ expression: String) -> String? {
        if expression.hasPrefix("count:("), expression.hasSuffix(")") {
            return String(expression.dropFirst(7).dropLast())
        }
        return expression.hasSuffix(".@count") ? String(expression.dropLast(7)) : nil
    }
}

extension StoreLayout {
    package var derivedAttributeTriggers: [DerivedAttributeTriggers] {
        numbers.entities.flatMap { entity in
            entity.attributes.compactMap { DerivedAttributeTriggers($0, of: entity, self) }
        }
    }

    /// The stored derived attributes whose values Core Data computes in ways that are not known here.
    package var unknownDerivations: [String] {
        let known = Set(derivedAttributeTriggers.map(\.name))
        return numbers.entities.flatMap { entity in
            entity.attributes.filter { $0.derivation != nil && !$0.isTransient }.map { entity.name + "." + $0.name }
        }.filter { !known.contains($0) }
    }
}
