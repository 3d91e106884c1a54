/// A comparison, key by key, of the objects of one entity that a mapping model copied. It proves more than equal
/// numbers of equal values do: that each object has its own values and references.
///
/// A difference proves nothing, since a mapping model may give objects new keys. `CopiedCheck` then compares how often
/// values occur.
struct KeyedComparison {
    /// The content that was found equal.
    struct Proof: Sendable {
        fileprivate let oldTable: String
        /// The table of the copy.
        let newTable: String
        /// True if the tables have no other rows, so that they have the same keys.
        fileprivate let isOfWholeTables: Bool
        /// The old and the new columns of the compared references.
        fileprivate let references: [ColumnPair]
    }

    struct ColumnPair: Hashable, Sendable {
        let old: String
        let new: String
    }

    let context: AuditContext
    let mapping: CopiedEntity

    private var oldTree: EntityTree { context.oldLayout.tree }
    private var newTree: EntityTree { context.newLayout.tree }

    /// Returns nil if an object has other values, or isn't there.
    func proof() throws -> Proof? {
        guard let source = mapping.source,
            let oldTable = context.oldSchema.table(oldTree.table(of: source)),
            let newTable = context.newSchema.table(newTree.table(of: mapping.destination))
        else { return nil }
        let references = try references(of: source, in: oldTable, newTable)
        let pairs = attributes(of: source) + references
        let (old, new) = (context.oldSchema.qualified(oldTable.name), context.newSchema.qualified(newTable.name))
        let (number, newNumber) = (oldTree.number(of: source), newTree.number(of: mapping.destination))
        // `+` removes the columns' affinities: a text is not equal to a number.
        let isSame = conjunction(
            ["a.Z_ENT IS \(newNumber)"] + pairs.map { "+a.\(quoted($0.new)) IS +b.\(quoted($0.old))" })
        let rows = "\(old) AS b NOT INDEXED LEFT JOIN \(new) AS a ON a.Z_PK = b.Z_PK"
        if isAlone(source, in: oldTree), isAlone(mapping.destination, in: newTree),
            try !context.search.finds("b.Z_ENT IS NOT \(number) OR NOT \(isSame)", in: rows, of: old),
            try context.search.isEqualCount(of: "\(old) NOT INDEXED", and: "\(new) NOT INDEXED", in: old)
        {
            return Proof(
                oldTable: oldTable.name, newTable: newTable.name, isOfWholeTables: true, references: references)
        }
        guard try !context.search.finds("b.Z_ENT = \(number) AND NOT \(isSame)", in: rows, of: old),
            try context.search.isEqualCount(
                of: "\(old) NOT INDEXED WHERE Z_ENT = \(number)", and: "\(new) NOT INDEXED WHERE Z_ENT = \(newNumber)",
                in: old)
        else { return nil }
        return Proof(oldTable: oldTable.name, newTable: newTable.name, isOfWholeTables: false, references: references)
    }

    /// Returns true if the older table is large, and another thread can read it.
    func isLarge() throws -> Bool {
        guard let source = mapping.source, let table = context.oldSchema.table(oldTree.table(of: source)) else {
            return false
        }
        return try context.search.isLarge(context.oldSchema.qualified(table.name))
    }

    /// Returns true if no other entity has objects in the entity's table.
    private func isAlone(_ entity: String, in tree: EntityTree) -> Bool {
        tree.root(of: entity) == entity && tree.family(of: entity) == [entity]
    }

    private func attributes(of source: String) -> [ColumnPair] {
        mapping.attributes.compactMap { attribute in
            guard let old = context.oldLayout.column(of: attribute.source, source),
                let new = context.newLayout.column(of: attribute.destination, mapping.destination)
            else { return nil }
            return ColumnPair(old: old, new: new)
        }
    }

    /// Returns the columns of the relationships that both tables hold in the owner's row.
    private func references(
        of source: String, in oldTable: AuditSchema.Table, _ newTable: AuditSchema.Table
    ) throws -> [ColumnPair] {
        try mapping.relationships.compactMap { relationship in
            guard let links = try context.links(of: relationship, mapping),
                links.old.form == .owner, links.new.form == .owner, sameName(links.old.table, oldTable.name),
                sameName(links.new.table, newTable.name)
            else { return nil }
            return ColumnPair(old: links.old.target, new: links.new.target)
        }
    }
}

/// Two join tables and their corresponding columns.
struct JoinedPairs: Hashable {
    let oldTable: String
    let newTable: String
    let columns: Set<KeyedComparison.ColumnPair>

    init(old: LinkColumns, new: LinkColumns) {
        (oldTable, newTable) = (old.table, new.table)
        columns = [.init(old: old.owner, new: new.owner), .init(old: old.target, new: new.target)]
    }
}

extension [KeyedComparison.Proof] {
    /// Returns true if the relationship has the same links: its references are equal, as the proofs imply or a
    /// comparison of the join tables shows, and so are the keys of all owners and targets.
    ///
    /// `samePairs` has the join tables that were found to have the same pairs: each is of two relationships.
    func cover(
        _ relationship: (source: String, destination: String), of mapping: CopiedEntity, _ context: AuditContext,
        _ samePairs: inout Set<JoinedPairs>
    ) throws -> Bool {
        guard let source = mapping.source, let links = try context.links(of: relationship, mapping),
            links.old.form == links.new.form,
            let ends = context.tables(of: relationship, from: source, to: mapping.destination)
        else { return false }
        let areSame = ends.allSatisfy { tables in
            contains { $0.isOfWholeTables && sameName($0.oldTable, tables.old) && sameName($0.newTable, tables.new) }
        }
        guard areSame else { return false }
        if links.old.form == .join {
            let pairs = JoinedPairs(old: links.old, new: links.new)
            guard try samePairs.contains(pairs) || context.areSame(pairs) else { return false }
            samePairs.insert(pairs)
            return true
        }
        let isOwners = links.old.form == .owner
        let columns = KeyedComparison.ColumnPair(
            old: isOwners ? links.old.target : links.old.owner, new: isOwners ? links.new.target : links.new.owner)
        return contains {
            sameName($0.oldTable, links.old.table) && sameName($0.newTable, links.new.table)
                && $0.isOfWholeTables && $0.references.contains(columns)
        }
    }
}

extension AuditContext {
    /// Returns the locations of a relationship's links in both stores; nil if one of them has none.
    fileprivate func links(
        of relationship: (source: String, destination: String), _ mapping: CopiedEntity
    ) throws -> (old: LinkColumns, new: LinkColumns)? {
        guard let source = mapping.source,
            let oldEntity = oldLayout.tree.declaring(relationship.source, of: source),
            let newEntity = newLayout.tree.declaring(relationship.destination, of: mapping.destination),
            let old = try oldLayout.links(
                of: PropertyKey(entity: oldEntity, name: relationship.source), in: oldSchema),
            let new = try newLayout.links(
                of: PropertyKey(entity: newEntity, name: relationship.destination), in: newSchema)
        else { return nil }
        return (old, new)
    }

    /// Returns true if two join tables have the same pairs of keys. A difference proves nothing: older pairs may have
    /// the key of a missing object.
    fileprivate func areSame(_ pairs: JoinedPairs) throws -> Bool {
        let (before, after) = (oldSchema.qualified(pairs.oldTable), newSchema.qualified(pairs.newTable))
        let isSame = pairs.columns.map { "a.\(quoted($0.new)) = b.\(quoted($0.old))" }.sorted()
            .joined(separator: " AND ")
        return try isTrue("(SELECT count(*) FROM \(before) NOT INDEXED) = (SELECT count(*) FROM \(after) NOT INDEXED)")
            && integer(
                "SELECT 1 FROM \(before) AS b WHERE NOT EXISTS (SELECT 1 FROM \(after) AS a WHERE \(isSame)) LIMIT 1")
                == nil
    }

    /// Returns the tables of a relationship's owners and of its targets.
    fileprivate func tables(
        of relationship: (source: String, destination: String), from source: String, to destination: String
    ) -> [(old: String, new: String)]? {
        guard let oldTarget = oldLayout.target(of: relationship.source, source),
            let newTarget = newLayout.target(of: relationship.destination, destination)
        else { return nil }
        return [
            (oldLayout.tree.table(of: source), newLayout.tree.table(of: destination)),
            (oldLayout.tree.table(of: oldTarget), newLayout.tree.table(of: newTarget)),
        ]
    }
}

extension AuditLayout {
    /// Returns the column of an attribute that the entity declares or inherits; nil if it isn't stored in one.
    func column(of attribute: String, _ entity: String) -> String? {
        tree.declaring(attribute, of: entity).flatMap { attributes[AttributeKey(entity: $0, path: [attribute])] }
    }

    /// Returns the entity that a relationship of the entity leads to.
    fileprivate func target(of relationship: String, _ entity: String) -> String? {
        tree.declaring(relationship, of: entity)
            .flatMap { tree.relationship(PropertyKey(entity: $0, name: relationship)) }?.destinationEntityName
    }
}
