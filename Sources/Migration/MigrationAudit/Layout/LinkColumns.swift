/// The location of a relationship's links, seen from the objects that have it: its owners.
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
    /// The column with the owner's key.
    let owner: String
    /// The column with the target's key.
    let target: String
    /// The column of the targets' positions in the owner's order; nil if unordered.
    let place: String?
    /// The column of the target's `Z_ENT`.
    let targetEntity: String?

    /// The column that is NULL if a row is not a link.
    var column: String { form == .owner ? target : owner }
}

extension AuditLayout {
    /// Returns the location of a relationship's links; nil if it isn't stored or its table doesn't exist. Throws
    /// `AuditFailure` if the columns of the join table can't be distinguished.
    func links(of key: PropertyKey, in schema: AuditSchema) throws -> LinkColumns? {
        guard let relationship = tree.relationship(key), !relationship.isTransient else { return nil }
        if let reference = references[key] {
            return LinkColumns(
                form: .owner, table: reference.table, owner: "Z_PK", target: reference.column, place: nil,
                targetEntity: reference.entity)
        }
        if let reverse = reverseReferences[key] {
            return LinkColumns(
                form: .target, table: reverse.table, owner: reverse.column, target: "Z_PK", place: reverse.place,
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

    /// Returns the location of links in a join table. The table is named after one of its two relationships; which one
    /// depends on the whole model. If the names of two relationships differ only in case, one of the two table names
    /// may belong to another relationship.
    private func joinTable(
        of key: PropertyKey, _ inverse: PropertyKey, isOrdered: Bool, _ schema: AuditSchema
    ) throws -> LinkColumns? {
        let ownName = "Z_\(tree.number(of: key.entity))\(key.name.uppercased())"
        let inverseName = "Z_\(tree.number(of: inverse.entity))\(inverse.name.uppercased())"
        let tables = [ownName, inverseName].compactMap { schema.table($0) }
        guard let first = tables.first else {
            guard schema.database == "main" else { return nil }
            throw AuditFailure(
                entity: key.entity, property: key.name, expected: "a table \(ownName) or \(inverseName)", found: "none")
        }
        for table in tables {
            let isNamedAfterOwner = sameName(table.name, ownName)
            if let found = columns(
                of: key, inverse, isOrdered: isOrdered, in: table, isNamedAfterOwner: isNamedAfterOwner)
            {
                return found
            }
        }
        throw Self.ambiguity(of: key, in: first, schema)
    }

    /// Returns nil if the table isn't that of the relationship, or its columns can't be distinguished.
    private func columns(
        of key: PropertyKey, _ inverse: PropertyKey, isOrdered: Bool, in table: AuditSchema.Table,
        isNamedAfterOwner: Bool
    ) -> LinkColumns? {
        // The column of an entity's objects is named after the relationship that refers to them.
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
        // If the names fit both ways, the side that names the table comes first.
        let ownerFirst = isStraight && isReversed ? isNamedAfterOwner : isStraight
        let (owner, target) = ownerFirst ? (pair[0], pair[1]) : (pair[1], pair[0])
        let places = ["Z_FOK_" + target.dropFirst(2), "Z_FOK_" + targetName.dropFirst(2)]
        let place = places.first { table.index(of: $0) != nil }
        guard !isOrdered || place != nil else { return nil }
        return LinkColumns(
            form: .join, table: table.name, owner: owner, target: target, place: isOrdered ? place : nil,
            targetEntity: nil)
    }

    private static func ambiguity(of key: PropertyKey, in table: AuditSchema.Table, _ schema: AuditSchema)
        -> AuditFailure
    {
        AuditFailure(
            entity: key.entity, property: key.name,
            expected: "columns of this relationship in the table \(table.name) of \(schema.description)",
            found: table.columns.map(\.name).joined(separator: ", "))
    }
}

extension String {
    /// Returns true if the string is `name`, or `name` with a numeric suffix.
    fileprivate func isNumbered(_ name: String) -> Bool {
        hasPrefix(name) && dropFirst(name.count).allSatisfy { $0.isASCII && $0.isNumber }
    }
}
