import ManagedObjectModels

/// The triggers that Core Data creates to keep a derived attribute up to date, character for character. They call
/// functions that only Core Data has. Those that count the objects of a to-many relationship with a to-one inverse were
/// seen in stores; the others are reported.
package struct DerivedAttributeTriggers: Sendable {
    package let entity: String
    package let attribute: String
    /// The table and column of the derived value.
    package let table: String
    package let column: String
    /// The SQL expression that recomputes a row's value, with `t` as the row's table. It may call Core Data's
    /// functions.
    package let value: String
    /// True if the value is the time of the save, which can't be recomputed.
    package let isSaveTime: Bool
    /// The properties that the value is derived from.
    package let sources: [Source]
    package let triggers: [Trigger]

    package struct Trigger: Equatable, Sendable {
        package let name: String
        package let creation: String
    }

    package struct Source: Equatable, Sendable {
        package let entity: String
        package let property: String
    }

    /// The name of the attribute as `Entity.attribute`.
    package var name: String { entity + "." + attribute }

    /// Returns nil for a derivation for which Core Data creates no triggers.
    fileprivate init?(_ attribute: AttributeDescription, of entity: EntityDescription, _ layout: StoreLayout) {
        guard !attribute.isTransient, let expression = attribute.derivation.flatMap(DerivationExpression.init),
            let target = DerivedValue(attribute, of: entity, layout), let found = target.derived(as: expression)
        else { return nil }
        self.entity = entity.name
        self.attribute = attribute.name
        table = target.table
        column = target.column
        value = found.value
        isSaveTime = expression == .now
        sources = target.sources(of: expression.path)
        // Core Data skips a trigger whose name is taken.
        var names: Set<String> = []
        triggers = found.triggers.filter { names.insert($0.name.lowercased()).inserted }
    }
}

/// The column of a derived value and its statements.
struct DerivedValue {
    typealias Trigger = DerivedAttributeTriggers.Trigger

    let layout: StoreLayout
    let entity: EntityDescription
    let attribute: String
    let table: String
    let column: String

    init?(_ attribute: AttributeDescription, of entity: EntityDescription, _ layout: StoreLayout) {
        guard let table = layout.table(of: entity.name), let column = layout.column(of: attribute.name, of: entity.name)
        else { return nil }
        self.layout = layout
        self.entity = entity
        self.attribute = attribute.name
        self.table = table.name
        self.column = column.name
    }

    /// Returns the SQL expression of the value and its triggers; nil if the model doesn't fit the derivation.
    func derived(as expression: DerivationExpression) -> (value: String, triggers: [Trigger])? {
        switch expression {
        case .now: return fromOwnRow(watching: "Z_OPT", "NSCoreDataNow()", "NSCoreDataNow()")
        case .value(let path, let function):
            if path.count == 1 {
                guard let source = attributeColumn(path[0], of: entity.name) else { return nil }
                return fromOwnRow(
                    watching: source, function.applied(to: "NEW." + source), function.applied(to: "t." + source))
            }
            guard let relationship = relationship(path[0]), !relationship.isToMany,
                let reference = layout.column(of: path[0], of: entity.name)?.name,
                let target = layout.table(of: relationship.destinationEntityName)?.name,
                let source = attributeColumn(path[1], of: relationship.destinationEntityName)
            else { return nil }
            return fromToOne(reference, target: target, source: source, function)
        case .aggregate(let aggregate, let path):
            guard let relationship = relationship(path[0]), relationship.isToMany else { return nil }
            if let collection = DerivedCollection(
                relationship, attribute: path.dropFirst().first, aggregate: aggregate, of: self)
            {
                return aggregate == .count || aggregate == .sum
                    ? collection.total(of: self) : collection.extreme(of: self)
            }
            return aggregate == .count && path.count == 1 ? countOfManyToMany(path[0]) : nil
        }
    }

    private func relationship(_ name: String) -> RelationshipDescription? {
        guard case .relationship(let found)? = layout.model.property(named: name, of: entity) else { return nil }
        return found
    }

    func attributeColumn(_ name: String, of entity: String) -> String? {
        guard let entity = layout.model.entity(named: entity),
            case .attribute? = layout.model.property(named: name, of: entity)
        else { return nil }
        return layout.column(of: name, of: entity.name)?.name
    }

    /// Returns the properties on a path of one or two steps.
    func sources(of path: [String]) -> [DerivedAttributeTriggers.Source] {
        guard let first = path.first else { return [] }
        var found = [DerivedAttributeTriggers.Source(entity: entity.name, property: first)]
        if path.count > 1, let destination = relationship(first)?.destinationEntityName {
            found.append(DerivedAttributeTriggers.Source(entity: destination, property: path[1]))
        }
        return found
    }

    // MARK: Statements

    /// Returns an SQL condition on the entity number for the rows that have the attribute; nil if the entity is a root.
    func range(_ row: String = "") -> String? {
        guard entity.superentityName != nil else { return nil }
        let numbers = layout.numbers.family(of: entity.name).map(layout.numbers.number)
        guard let first = numbers.min(), let last = numbers.max() else { return nil }
        return first == last ? "\(first) = \(row)Z_ENT" : "\(first) <= \(row)Z_ENT AND \(row)Z_ENT <= \(last)"
    }

    var inRange: String { range().map { " AND " + $0 } ?? "" }
    var whenInRange: String { range("NEW.").map { " WHEN " + $0 } ?? "" }

    func set(_ value: String, where condition: String) -> String {
        " UPDATE \(table) SET \(column) = \(value) WHERE \(condition);"
    }

    /// Returns a statement that notifies Core Data of the changed value.
    func notify(_ kind: String = "Updated", where condition: String) -> String {
        " SELECT NSCoreDataDATrigger\(kind)AffectedObjectValue('\(table)', Z_ENT, Z_PK, '\(attribute)', \(column)) "
            + "FROM \(table) WHERE \(condition);"
    }

    func trigger(_ name: String, _ event: String, on table: String, when: String = "", _ statements: String...)
        -> Trigger
    {
        Trigger(
            name: name,
            creation: "CREATE TRIGGER \(name) AFTER \(event) ON \(table) FOR EACH ROW\(when) BEGIN"
                + statements.joined() + " END")
    }

    func prefix(_ table: String, _ part: String = "") -> String { "Z_DA_\(table)_\(entity.name)_\(attribute)\(part)" }

    // MARK: From the same object, or from the object of a to-one relationship

    /// Derives the value from another attribute of the same object, or from the time of the save.
    private func fromOwnRow(
        watching source: String, _ new: String, _ value: String
    ) -> (value: String, triggers: [Trigger]) {
        let name = prefix(table)
        let key = "Z_PK = NEW.Z_PK"
        return (
            value,
            [
                trigger(
                    name + "_INSERT", "INSERT", on: table, when: " WHEN (NEW.\(source) NOT NULL)",
                    set(new, where: key), notify("InsertUpdated", where: key)),
                trigger(
                    name + "_UPDATE", "UPDATE OF \(source)", on: table, set(new, where: key), notify(where: key)),
            ]
        )
    }

    /// Derives the value from an attribute of a to-one relationship's object.
    private func fromToOne(
        _ reference: String, target: String, source: String, _ function: DerivationExpression.Function?
    ) -> (value: String, triggers: [Trigger]) {
        let selected = "(SELECT \(function.applied(to: source)) FROM \(target) WHERE Z_PK = NEW.\(reference))"
        let new = function.applied(to: "NEW." + source)
        let row = "Z_PK = NEW.Z_PK"
        let rowInRange = row + (range("NEW.").map { " AND " + $0 } ?? "")
        let referring = "\(reference) = NEW.Z_PK" + inRange
        let (here, there) = (prefix(table, "_SOURCE"), prefix(target, "_PARAMETER"))
        return (
            "(SELECT \(function.applied(to: "d." + source)) FROM \(target) AS d WHERE d.Z_PK = t.\(reference))",
            [
                trigger(
                    here + "_INSERT", "INSERT", on: table, set(selected, where: rowInRange),
                    notify("InsertUpdated", where: rowInRange)),
                trigger(
                    here + "_UPDATE", "UPDATE OF \(reference)", on: table, when: whenInRange, set(selected, where: row),
                    notify(where: row)),
                trigger(
                    there + "_INSERT", "INSERT", on: target, set(new, where: referring),
                    notify("InsertUpdated", where: referring)),
                trigger(
                    there + "_UPDATE", "UPDATE OF \(source)", on: target, set(new, where: referring),
                    notify(where: referring)),
            ]
        )
    }

    // MARK: From a many-to-many relationship

    private func countOfManyToMany(_ relationship: String) -> (value: String, triggers: [Trigger])? {
        let declaring = layout.declaringEntity(of: relationship, of: entity.name)?.name
        func isSource(_ side: JoinTableLayout.Side) -> Bool {
            side.entity == declaring && side.relationship == relationship
        }
        guard let join = layout.joinTables.first(where: { isSource($0.owner) || isSource($0.inverse) }) else {
            return nil
        }
        let key = isSource(join.owner) ? join.owner.column : join.inverse.column
        let (here, there) = (prefix(table, "_SOURCE"), prefix(join.name, "_PARAMETER"))
        func update(_ value: String, _ row: String) -> String {
            let condition = "Z_PK = \(row).\(key)" + inRange
            return set(value, where: condition) + notify(where: condition)
        }
        let count = "(SELECT IFNULL(COUNT(\(key)), 0) FROM \(join.name) WHERE \(key) = NEW.Z_PK)"
        return (
            "(SELECT IFNULL(COUNT(d.\(key)), 0) FROM \(join.name) AS d WHERE d.\(key) = t.Z_PK)",
            [
                trigger(there + "_INSERT", "INSERT", on: join.name, update("IFNULL(\(column), 0) + 1", "NEW")),
                trigger(there + "_DELETE", "DELETE", on: join.name, update("\(column) - 1", "OLD")),
                trigger(
                    here + "_INSERT", "INSERT", on: table, when: whenInRange,
                    set(count, where: "Z_PK = NEW.Z_PK"), notify(where: "Z_PK = NEW.Z_PK")),
            ]
        )
    }
}

extension DerivationExpression.Function? {
    fileprivate func applied(to value: String) -> String { map { "\($0.sqlName)(\(value))" } ?? value }
}

extension StoreLayout {
    /// The triggers of all derived attributes, by entity number.
    package var derivedAttributeTriggers: [DerivedAttributeTriggers] {
        numbers.entities.flatMap { entity in
            entity.attributes.compactMap { DerivedAttributeTriggers($0, of: entity, self) }
        }
    }

    /// The stored derived attributes whose triggers are unknown, as `Entity.attribute`.
    package var unsupportedDerivations: [String] {
        let supported = Set(derivedAttributeTriggers.map(\.name))
        return numbers.entities.flatMap { entity in
            entity.attributes.filter { $0.derivation != nil && !$0.isTransient }.map { entity.name + "." + $0.name }
        }.filter { !supported.contains($0) }
    }
}
