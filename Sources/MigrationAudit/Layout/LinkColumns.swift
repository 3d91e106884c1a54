/// Where the links of one relationship are kept, seen from the objects that have it: its owners.
struct LinkColumns: Hashable {
    enum Form: Hashable {
        /// A column of the owner's row.
        case owner
        /// A column of the target's row.
        case target
        /// A table of pairs.
        case join
    }

    let form: Form
    let table: String
    /// The column that holds, or the key of the row that is, the owner.
    let owner: String
    let target: String
    /// The targets' places in the owner's order; nil where they have none.
    let place: String?
    /// The target's `Z_ENT`.
    let targetEntity: String?

    /// The column that is NULL where a row is no link.
    var column: String { form == .owner ? target : owner }
}

extension AuditLayout {
    /// Nil for a relationship that nothing is kept of, or whose table isn't there. Throws `AuditFailure` where the join
    /// table's columns can't be told apart.
    func links(of key: PropertyKey, in schema: AuditSchema) throws -> LinkColumns? {
        guard let relationship = tree.relationship(key), !relationship.isTransient else { return nil }
        if let reference = references[key] {
            return LinkColumns(
                form: .owner, table: reference.table, owner: "Z_PK", target: reference.column, place: nil,
                targetEntity: reference.entity)
        }
        if let backward = backward[key] {
            return LinkColumns(
                form: .target, table: backward.table, owner: backward.column, target: "Z_PK", place: backward.place,
                targetEntity: nil)
        }
        guard let inverse = tree.inverse(of: relationship) else { return nil }
        if let reference = references[inverse] {
            return LinkColumns(
                form: .target, table: reference.table, owner: reference.column, target: "Z_PK",
                place: relationship.isOrdered ? reference.place : nil, targetEntity: nil)
        }
        return try joinTable(of: key, inverse, isOrdered: relationship.isOrdered, schema)
    }

    /// A join table is named after the one or the other of its two relationships; which, depends on all of the model. Where two
    /// relationships' names differ in case only, one of the two names may be that of another relationship's table.
    private func joinTable(
        of key: PropertyKey, _ inverse: PropertyKey, isOrdered: Bool, _ schema: AuditSchema
    ) throws -> LinkColumns? {
        let mine = "Z_\(tree.number(of: key.entity))\(key.name.uppercased())"
        let others = "Z_\(tree.number(of: inverse.entity))\(inverse.name.uppercased())"
        let tables = [mine, others].compactMap { schema.table($0) }
        guard let first = tables.first else {
            guard schema.database == "main" else { return nil }
            throw AuditFailure(
                entity: key.entity, property: key.name, expected: "a table \(mine) or \(others)", found: "none")
        }
        for table in tables {
            let isMine = sameName(table.name, mine)
            if let found = columns(of: key, inverse, isOrdered: isOrdered, in: table, isMine: isMine) { return found }
        }
        throw Self.unclear(key, first, schema)
    }

    /// Nil where the table is none of the relationship's, or its columns can't be told apart.
    private func columns(
        of key: PropertyKey, _ inverse: PropertyKey, isOrdered: Bool, in table: AuditSchema.Table, isMine: Bool
    ) -> LinkColumns? {
        // The objects of an entity stand in the column that is named after the relationship that leads to them.
        let ownerName = "Z_\(tree.number(of: key.entity))\(inverse.name.uppercased())"
        let targetName = "Z_\(tree.number(of: inverse.entity))\(key.name.uppercased())"
        if key == inverse {
            guard let owner = table.columns.first(where: { $0.name.isNumbered(ownerName) }),
                table.index(of: "REFLEXIVE") != nil
            else { return nil }
            return LinkColumns(
                form: .join, table: table.name, owner: owner.name, target: "REFLEXIVE",
                place: isOrdered ? table.column("FOK_REFLEXIVE")?.name : nil, targetEntity: nil)
        }
        let pair = table.columns.filter { !$0.name.hasPrefix("Z_FOK_") }.map(\.name)
        guard pair.count == 2 else { return nil }
        let isStraight = pair[0].isNumbered(ownerName) && pair[1].isNumbered(targetName)
        let isReversed = pair[1].isNumbered(ownerName) && pair[0].isNumbered(targetName)
        guard isStraight || isReversed else { return nil }
        // Where the names fit both ways, the side that the table is named after stands first.
        let ownerFirst = isStraight && isReversed ? isMine : isStraight
        let (owner, target) = ownerFirst ? (pair[0], pair[1]) : (pair[1], pair[0])
        let places = ["Z_FOK_" + target.dropFirst(2), "Z_FOK_" + targetName.dropFirst(2)]
        let place = places.first { table.index(of: $0) != nil }
        guard !isOrdered || place != nil else { return nil }
        return LinkColumns(
            form: .join, table: table.name, owner: owner, target: target, place: isOrdered ? place : nil,
            targetEntity: nil)
    }

    private static func unclear(_ key: PropertyKey, _ table: AuditSchema.Table, _ schema: AuditSchema) -> AuditFailure {
        AuditFailure(
            entity: key.entity, property: key.name,
            expected: "columns of this relationship in the table \(table.name) of \(schema.description)",
            found: table.columns.map(\.name).joined(separator: ", "))
    }
}

extension String {
    /// Whether this is the name, or the name with a number behind it.
    fileprivate func isNumbered(_ name: String) -> Bool {
        hasPrefix(name) && dropFirst(name.count).allSatisfy { $0.isASCII && $0.isNumber }
    }
}
