import ManagedObjectModels

/// The triggers by which Core Data keeps a derived attribute up to date, as it writes them. They call functions that only
/// Core Data has. Those that count the objects of a to-many relationship with a to-one inverse were seen in stores; the
/// others are reported.
package struct DerivedAttributeTriggers: Sendable {
    package let entity: String
    package let attribute: String
    /// The table and column of the derived value.
    package let table: String
    package let column: String
    /// The expression that gives each row's value anew, the row's table being called `t`. It may call Core Data's functions.
    package let value: String
    /// Whether the value is of the moment when it is made, so that it isn't made again.
    package let isOfItsMoment: Bool
    /// What the value is made of.
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

    /// `Entity.attribute`
    package var name: String { entity + "." + attribute }

    /// Nil for a derivation that Core Data makes no triggers for.
    fileprivate init?(_ attribute: AttributeDescription, of entity: EntityDescription, _ layout: StoreLayout) {
        guard !attribute.isTransient, let expression = attribute.derivation.flatMap(DerivationExpression.init),
            let target = DerivedValue(attribute, of: entity, layout), let found = target.derived(as: expression)
        else { return nil }
        self.entity = entity.name
        self.attribute = attribute.name
        table = target.table
        column = target.column
        value = found.value
        isOfItsMoment = expression == .now
        sources = target.sources(of: expression.path)
        // As they are made: where there is one of the name, the next isn't made.
        var names: Set<String> = []
        triggers = found.triggers.filter { names.insert($0.name.lowercased()).inserted }
    }
}

/// The place of a derived value, and the statements that are about it.
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

    func derived(as expression: DerivationExpression) -> (value: String, triggers: [Trigger])? {
        switch expression {
        case .now: return own(watching: "Z_OPT", "NSCoreDataNow()", "NSCoreDataNow()")
        case .value(let path, let function):
            if path.count == 1 {
                guard let source = attributeColumn(path[0], of: entity.name) else { return nil }
                return own(watching: source, function.of("NEW." + source), function.of("t." + source))
            }
            guard let relationship = relationship(path[0]), !relationship.isToMany,
                let reference = layout.column(of: path[0], of: entity.name)?.name,
                let other = layout.table(of: relationship.destinationEntityName)?.name,
                let source = attributeColumn(path[1], of: relationship.destinationEntityName)
            else { return nil }
            return followed(reference, other, source, function)
        case .aggregate(let aggregate, let path):
            guard let relationship = relationship(path[0]), relationship.isToMany else { return nil }
            if let collection = DerivedCollection(relationship, path.dropFirst().first, aggregate, of: self) {
                return aggregate == .count || aggregate == .sum
                    ? collection.total(of: self) : collection.extreme(of: self)
            }
            return aggregate == .count && path.count == 1 ? joined(path[0]) : nil
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

    /// The properties on a path of one step or two.
    func sources(of path: [String]) -> [DerivedAttributeTriggers.Source] {
        guard let first = path.first else { return [] }
        var found = [DerivedAttributeTriggers.Source(entity: entity.name, property: first)]
        if path.count > 1, let destination = relationship(first)?.destinationEntityName {
            found.append(DerivedAttributeTriggers.Source(entity: destination, property: path[1]))
        }
        return found
    }

    // MARK: Statements

    /// Which rows of the table have the attribute, where others inherit from the same entity: those with these numbers.
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

    func tell(_ kind: String = "Updated", where condition: String) -> String {
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

    // MARK: Of the object itself, and of one other

    /// Of another attribute of the same object, or of the moment.
    private func own(watching source: String, _ new: String, _ value: String) -> (value: String, triggers: [Trigger]) {
        let name = prefix(table)
        let key = "Z_PK = NEW.Z_PK"
        return (
            value,
            [
                trigger(
                    name + "_INSERT", "INSERT", on: table, when: " WHEN (NEW.\(source) NOT NULL)",
                    set(new, where: key), tell("InsertUpdated", where: key)),
                trigger(
                    name + "_UPDATE", "UPDATE OF \(source)", on: table, set(new, where: key), tell(where: key)),
            ]
        )
    }

    /// Of an attribute of the object that a to-one relationship leads to.
    private func followed(
        _ reference: String, _ other: String, _ source: String, _ function: DerivationExpression.Function?
    ) -> (value: String, triggers: [Trigger]) {
        let selected = "(SELECT \(function.of(source)) FROM \(other) WHERE Z_PK = NEW.\(reference))"
        let new = function.of("NEW." + source)
        let own = "Z_PK = NEW.Z_PK"
        let ownInRange = own + (range("NEW.").map { " AND " + $0 } ?? "")
        let leading = "\(reference) = NEW.Z_PK" + inRange
        let (here, there) = (prefix(table, "_SOURCE"), prefix(other, "_PARAMETER"))
        return (
            "(SELECT \(function.of("d." + source)) FROM \(other) AS d WHERE d.Z_PK = t.\(reference))",
            [
                trigger(
                    here + "_INSERT", "INSERT", on: table, set(selected, where: ownInRange),
                    tell("InsertUpdated", where: ownInRange)),
                trigger(
                    here + "_UPDATE", "UPDATE OF \(reference)", on: table, when: whenInRange, set(selected, where: own),
                    tell(where: own)),
                trigger(
                    there + "_INSERT", "INSERT", on: other, set(new, where: leading),
                    tell("InsertUpdated", where: leading)),
                trigger(
                    there + "_UPDATE", "UPDATE OF \(source)", on: other, set(new, where: leading), tell(where: leading)),
            ]
        )
    }

    // MARK: Of a many-to-many relationship

    private func joined(_ relationship: String) -> (value: String, triggers: [Trigger])? {
        let declaring = layout.declaringEntity(of: relationship, of: entity.name)?.name
        func has(_ side: JoinTableLayout.Side) -> Bool { side.entity == declaring && side.relationship == relationship }
        guard let join = layout.joinTables.first(where: { has($0.owner) || has($0.inverse) }) else { return nil }
        let key = has(join.owner) ? join.owner.column : join.inverse.column
        let (here, there) = (prefix(table, "_SOURCE"), prefix(join.name, "_PARAMETER"))
        func changing(_ value: String, _ row: String) -> String {
            let condition = "Z_PK = \(row).\(key)" + inRange
            return set(value, where: condition) + tell(where: condition)
        }
        let count = "(SELECT IFNULL(COUNT(\(key)), 0) FROM \(join.name) WHERE \(key) = NEW.Z_PK)"
        return (
            "(SELECT IFNULL(COUNT(d.\(key)), 0) FROM \(join.name) AS d WHERE d.\(key) = t.Z_PK)",
            [
                trigger(there + "_INSERT", "INSERT", on: join.name, changing("IFNULL(\(column), 0) + 1", "NEW")),
                trigger(there + "_DELETE", "DELETE", on: join.name, changing("\(column) - 1", "OLD")),
                trigger(
                    here + "_INSERT", "INSERT", on: table, when: whenInRange,
                    set(count, where: "Z_PK = NEW.Z_PK"), tell(where: "Z_PK = NEW.Z_PK")),
            ]
        )
    }
}

extension DerivationExpression.Function? {
    fileprivate func of(_ value: String) -> String { map { "\($0.sqlName)(\(value))" } ?? value }
}

extension StoreLayout {
    package var derivedAttributeTriggers: [DerivedAttributeTriggers] {
        numbers.entities.flatMap { entity in
            entity.attributes.compactMap { DerivedAttributeTriggers($0, of: entity, self) }
        }
    }

    /// The stored derived attributes that no triggers are known for.
    package var unknownDerivations: [String] {
        let known = Set(derivedAttributeTriggers.map(\.name))
        return numbers.entities.flatMap { entity in
            entity.attributes.filter { $0.derivation != nil && !$0.isTransient }.map { entity.name + "." + $0.name }
        }.filter { !known.contains($0) }
    }
}
