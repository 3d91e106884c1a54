import ManagedObjectModels

/// What is counted, added up or compared of the objects that a to-many relationship with a to-one inverse leads to.
struct DerivedCollection {
    private let aggregate: DerivationExpression.Aggregate
    /// The objects' table, and their column that leads back.
    private let table: String
    private let reference: String
    /// The column of their values; nil where they are only counted.
    private let source: String?

    /// Nil where the relationship is kept otherwise, or the attribute isn't there.
    init?(
        _ relationship: RelationshipDescription, _ attribute: String?, _ aggregate: DerivationExpression.Aggregate,
        of value: DerivedValue
    ) {
        let (layout, destination) = (value.layout, relationship.destinationEntityName)
        guard let inverse = relationship.inverseName, let table = layout.table(of: destination)?.name,
            let reference = layout.column(of: inverse, of: destination)?.name,
            (attribute == nil) == (aggregate == .count)
        else { return nil }
        // Of entities with a parent, Core Data's own triggers name a column that they can't see.
        let isBelow = layout.model.entity(named: destination)?.superentityName != nil
        guard !isBelow || aggregate == .count || aggregate == .sum else { return nil }
        if let attribute {
            guard let column = value.attributeColumn(attribute, of: destination) else { return nil }
            source = column
        } else {
            source = nil
        }
        self.aggregate = aggregate
        self.table = table
        self.reference = reference
    }

    // MARK: Counts and sums

    func total(of value: DerivedValue) -> (value: String, triggers: [DerivedValue.Trigger]) {
        let (here, there) = (value.prefix(value.table, "_SOURCE"), value.prefix(table, "_PARAMETER"))
        let column = value.column
        let more = source.map { "+ IFNULL(NEW.\($0), 0)" } ?? "+ 1"
        let less = source.map { "- IFNULL(OLD.\($0), 0)" } ?? "- 1"
        let watched = source.map { "\(reference), \($0)" } ?? reference
        func changing(_ name: String, _ event: String, _ row: String, _ new: String) -> DerivedValue.Trigger {
            let condition = "Z_PK = \(row).\(reference)" + value.inRange
            return value.trigger(
                "\(there)_\(name)", event, on: table, when: " WHEN (\(row).\(reference) NOT NULL)",
                value.set(new, where: condition), value.tell(where: condition))
        }
        let function = source == nil ? "COUNT" : "SUM"
        let own = "Z_PK = NEW.Z_PK"
        let all = "(SELECT IFNULL(\(function)(\(source ?? reference)), 0) FROM \(table) WHERE \(reference) = NEW.Z_PK)"
        return (
            "(SELECT IFNULL(\(function)(d.\(source ?? reference)), 0) FROM \(table) AS d WHERE d.\(reference) = t.Z_PK)",
            [
                changing("INSERT", "INSERT", "NEW", "IFNULL(\(column), 0) \(more)"),
                changing("UPDATE_INCREMENT", "UPDATE OF \(watched)", "NEW", "\(column) \(more)"),
                changing("UPDATE_DECREMENT", "UPDATE OF \(watched)", "OLD", "\(column) \(less)"),
                changing("DELETE", "DELETE", "OLD", "\(column) \(less)"),
                value.trigger(
                    here + "_INSERT", "INSERT", on: value.table, when: value.whenInRange, value.set(all, where: own),
                    value.tell("InsertUpdated", where: own)),
            ]
        )
    }

    // MARK: The least and the greatest

    func extreme(of value: DerivedValue) -> (value: String, triggers: [DerivedValue.Trigger])? {
        guard let source else { return nil }
        let (here, there) = (value.prefix(value.table), value.prefix(table))
        let column = value.column
        let (function, sign) = aggregate == .min ? ("MIN", "<") : ("MAX", ">")
        let new = "Z_PK = NEW.\(reference)" + value.inRange
        let old = "Z_PK = OLD.\(reference)" + value.inRange
        let hasNew = "NEW.\(reference) NOT NULL AND NEW.\(source) NOT NULL"
        let hadOld = "OLD.\(reference) NOT NULL AND OLD.\(source) NOT NULL"
        let watched = "UPDATE OF \(reference), \(source)"
        let better = "\(new) AND (\(column) IS NULL OR NEW.\(source) \(sign) \(column))"
        let wasIt = "\(old) AND OLD.\(source) \(sign)= \(column)"
        let wasItOrNone = "\(old) AND (\(column) IS NULL OR OLD.\(source) \(sign)= \(column))"
        let again = "(SELECT \(function)(\(source)) FROM \(table) WHERE \(reference) = OLD.\(reference))"
        let own = "Z_PK = NEW.Z_PK"
        let all = "(SELECT \(function)(\(source)) FROM \(table) WHERE \(reference) = NEW.Z_PK)"
        return (
            "(SELECT \(function)(d.\(source)) FROM \(table) AS d WHERE d.\(reference) = t.Z_PK)",
            [
                value.trigger(
                    there + "_INSERT", "INSERT", on: table, when: " WHEN (\(hasNew))",
                    value.set("NEW." + source, where: better),
                    value.tell(where: "\(new) AND (\(column) IS NULL OR NEW.\(source) \(sign)= \(column))")),
                value.trigger(
                    there + "_UPDATE_SET", watched, on: table, when: " WHEN (\(hasNew))",
                    value.set(again, where: wasIt), value.tell(where: wasIt),
                    value.set("NEW." + source, where: better),
                    value.tell(where: "\(new) AND NEW.\(source) \(sign)= \(column)")),
                value.trigger(
                    there + "_UPDATE_UNSET", watched, on: table,
                    when: " WHEN (\(hadOld) AND (NEW.\(reference) IS NULL OR NEW.\(source) IS NULL))",
                    value.set(again, where: wasIt), value.tell(where: wasItOrNone)),
                value.trigger(
                    there + "_DELETE", "DELETE", on: table, when: " WHEN (\(hadOld))",
                    value.set(again, where: wasIt), value.tell(where: wasItOrNone)),
                value.trigger(
                    here + "_INSERT", "INSERT", on: value.table, when: value.whenInRange, value.set(all, where: own),
                    value.tell("InsertUpdated", where: own)),
            ]
        )
    }
}
