import ManagedObjectModels

/// An aggregate over the objects of a to-many relationship with a to-one inverse.
struct DerivedCollection {
    private let aggregate: DerivationExpression.Aggregate
    /// The table of the objects, and its column for the inverse.
    private let table: String
    private let reference: String
    /// The column of the aggregated values; nil for a count.
    private let source: String?

    /// Returns nil if the relationship is stored otherwise, or the attribute doesn't exist.
    init?(
        _ relationship: RelationshipDescription, attribute: String?, aggregate: DerivationExpression.Aggregate,
        of value: DerivedValue
    ) {
        let (layout, destination) = (value.layout, relationship.destinationEntityName)
        guard let inverse = relationship.inverseName, let table = layout.table(of: destination)?.name,
            let reference = layout.column(of: inverse, of: destination)?.name,
            (attribute == nil) == (aggregate == .count)
        else { return nil }
        // For entities with a parent, Core Data's triggers refer to a column that isn't visible to them.
        let hasParent = layout.model.entity(named: destination)?.superentityName != nil
        guard !hasParent || aggregate == .count || aggregate == .sum else { return nil }
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
        let increase = source.map { "+ IFNULL(NEW.\($0), 0)" } ?? "+ 1"
        let decrease = source.map { "- IFNULL(OLD.\($0), 0)" } ?? "- 1"
        let watched = source.map { "\(reference), \($0)" } ?? reference
        func update(_ name: String, on event: String, of row: String, to new: String) -> DerivedValue.Trigger {
            let condition = "Z_PK = \(row).\(reference)" + value.inRange
            return value.trigger(
                "\(there)_\(name)", event, on: table, when: " WHEN (\(row).\(reference) NOT NULL)",
                value.set(new, where: condition), value.notify(where: condition))
        }
        let function = source == nil ? "COUNT" : "SUM"
        let row = "Z_PK = NEW.Z_PK"
        let all = "(SELECT IFNULL(\(function)(\(source ?? reference)), 0) FROM \(table) WHERE \(reference) = NEW.Z_PK)"
        return (
            "(SELECT IFNULL(\(function)(d.\(source ?? reference)), 0) FROM \(table) AS d WHERE d.\(reference) = t.Z_PK)",
            [
                update("INSERT", on: "INSERT", of: "NEW", to: "IFNULL(\(column), 0) \(increase)"),
                update("UPDATE_INCREMENT", on: "UPDATE OF \(watched)", of: "NEW", to: "\(column) \(increase)"),
                update("UPDATE_DECREMENT", on: "UPDATE OF \(watched)", of: "OLD", to: "\(column) \(decrease)"),
                update("DELETE", on: "DELETE", of: "OLD", to: "\(column) \(decrease)"),
                value.trigger(
                    here + "_INSERT", "INSERT", on: value.table, when: value.whenInRange, value.set(all, where: row),
                    value.notify("InsertUpdated", where: row)),
            ]
        )
    }

    // MARK: Minimum and maximum

    func extreme(of value: DerivedValue) -> (value: String, triggers: [DerivedValue.Trigger])? {
        guard let source else { return nil }
        let (here, there) = (value.prefix(value.table), value.prefix(table))
        let column = value.column
        let (function, sign) = aggregate == .min ? ("MIN", "<") : ("MAX", ">")
        let new = "Z_PK = NEW.\(reference)" + value.inRange
        let old = "Z_PK = OLD.\(reference)" + value.inRange
        let newIsSet = "NEW.\(reference) NOT NULL AND NEW.\(source) NOT NULL"
        let oldIsSet = "OLD.\(reference) NOT NULL AND OLD.\(source) NOT NULL"
        let watched = "UPDATE OF \(reference), \(source)"
        let better = "\(new) AND (\(column) IS NULL OR NEW.\(source) \(sign) \(column))"
        let wasExtreme = "\(old) AND OLD.\(source) \(sign)= \(column)"
        let wasExtremeOrNull = "\(old) AND (\(column) IS NULL OR OLD.\(source) \(sign)= \(column))"
        let recomputed = "(SELECT \(function)(\(source)) FROM \(table) WHERE \(reference) = OLD.\(reference))"
        let row = "Z_PK = NEW.Z_PK"
        let all = "(SELECT \(function)(\(source)) FROM \(table) WHERE \(reference) = NEW.Z_PK)"
        return (
            "(SELECT \(function)(d.\(source)) FROM \(table) AS d WHERE d.\(reference) = t.Z_PK)",
            [
                value.trigger(
                    there + "_INSERT", "INSERT", on: table, when: " WHEN (\(newIsSet))",
                    value.set("NEW." + source, where: better),
                    value.notify(where: "\(new) AND (\(column) IS NULL OR NEW.\(source) \(sign)= \(column))")),
                value.trigger(
                    there + "_UPDATE_SET", watched, on: table, when: " WHEN (\(newIsSet))",
                    value.set(recomputed, where: wasExtreme), value.notify(where: wasExtreme),
                    value.set("NEW." + source, where: better),
                    value.notify(where: "\(new) AND NEW.\(source) \(sign)= \(column)")),
                value.trigger(
                    there + "_UPDATE_UNSET", watched, on: table,
                    when: " WHEN (\(oldIsSet) AND (NEW.\(reference) IS NULL OR NEW.\(source) IS NULL))",
                    value.set(recomputed, where: wasExtreme), value.notify(where: wasExtremeOrNull)),
                value.trigger(
                    there + "_DELETE", "DELETE", on: table, when: " WHEN (\(oldIsSet))",
                    value.set(recomputed, where: wasExtreme), value.notify(where: wasExtremeOrNull)),
                value.trigger(
                    here + "_INSERT", "INSERT", on: value.table, when: value.whenInRange, value.set(all, where: row),
                    value.notify("InsertUpdated", where: row)),
            ]
        )
    }
}
