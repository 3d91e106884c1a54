/// The content that a mapping model copies unchanged from one entity to another.
package struct CopiedEntity: Equatable, Sendable {
    /// The source entity; nil for a mapping that creates objects without a source.
    package var source: String?
    package var destination: String
    /// True if each object of the source entity becomes exactly one object: no filter applies, and no code of the app
    /// adds to the mapping.
    package var isComplete: Bool
    /// The attributes whose values are copied unchanged, with their names in the source and the destination.
    package var attributes: [(source: String, destination: String)]
    /// The relationships whose links are copied unchanged, with their names in the source and the destination.
    package var relationships: [(source: String, destination: String)]

    package init(
        source: String?, destination: String, isComplete: Bool,
        attributes: [(source: String, destination: String)] = [],
        relationships: [(source: String, destination: String)] = []
    ) {
        self.source = source
        self.destination = destination
        self.isComplete = isComplete
        self.attributes = attributes
        self.relationships = relationships
    }

    package static func == (lhs: CopiedEntity, rhs: CopiedEntity) -> Bool {
        lhs.source == rhs.source && lhs.destination == rhs.destination && lhs.isComplete == rhs.isComplete
            && lhs.attributes.elementsEqual(rhs.attributes, by: ==)
            && lhs.relationships.elementsEqual(rhs.relationships, by: ==)
    }
}

/// A check of the content that a mapping model copied. Objects may have new keys. Where they don't have their old ones,
/// it compares how often values occur.
struct CopiedCheck {
    let context: AuditContext
    let entities: [CopiedEntity]
    /// What was proven before, by the entity of the copy.
    var earlierProofs: [String: KeyedComparison.Proof] = [:]

    /// The mappings that copy all objects, by the entity of the copy.
    private var complete: [(destination: String, mappings: [CopiedEntity])] {
        Dictionary(grouping: entities, by: \.destination).sorted { $0.key < $1.key }.filter { destination, mappings in
            mappings.allSatisfy(\.isComplete) && context.newLayout.tree.number(of: destination) > 0
        }.map { ($0.key, $0.value) }
    }

    /// Returns the only mapping of an entity. The objects of several mappings can't be distinguished.
    private func only(_ mappings: [CopiedEntity]) -> CopiedEntity? {
        mappings.count == 1 && mappings.first?.source != nil ? mappings.first : nil
    }

    /// The comparisons of objects, by the entity of the copy.
    var comparisons: [(destination: String, comparison: KeyedComparison)] {
        complete.compactMap { destination, mappings in
            only(mappings).map { (destination, KeyedComparison(context: context, mapping: $0)) }
        }
    }

    func check() throws {
        var proofs: [KeyedComparison.Proof] = []
        var remaining: [CopiedEntity] = []
        for (destination, mappings) in complete {
            let only = only(mappings)
            if let only { remaining.append(only) }
            if let only,
                let proof = try earlierProofs[destination] ?? KeyedComparison(context: context, mapping: only).proof()
            {
                proofs.append(proof)
                continue
            }
            try checkCount(destination, mappings)
            if let only { try checkValues(only) }
        }
        var pairs: Set<JoinedPairs> = []
        for mapping in remaining {
            for relationship in mapping.relationships
            where try !proofs.cover(relationship, of: mapping, context, &pairs) {
                try checkLinks(mapping, relationship)
            }
        }
    }

    private func objects(of entity: String, _ layout: AuditLayout, _ schema: AuditSchema) -> String {
        "\(schema.qualified(layout.tree.table(of: entity))) AS x WHERE x.Z_ENT = \(layout.tree.number(of: entity))"
    }

    private func checkCount(_ destination: String, _ mappings: [CopiedEntity]) throws {
        let count =
            try context.integer(
                "SELECT count(*) FROM \(objects(of: destination, context.newLayout, context.newSchema))")
            ?? 0
        var expected: Int64 = 0
        for source in mappings.compactMap(\.source) {
            expected +=
                try context.integer("SELECT count(*) FROM \(objects(of: source, context.oldLayout, context.oldSchema))")
                ?? 0
        }
        guard count == expected else {
            throw AuditFailure(entity: destination, expected: "\(expected) objects", found: "\(count)")
        }
    }

    /// Compares the combined values of the objects.
    private func checkValues(_ mapping: CopiedEntity) throws {
        guard let source = mapping.source else { return }
        for part in stride(from: 0, to: mapping.attributes.count, by: 200) {
            let attributes = mapping.attributes.dropFirst(part).prefix(200)
            let sources = attributes.compactMap { context.oldLayout.column(of: $0.source, source) }
            let destinations = attributes.compactMap {
                context.newLayout.column(of: $0.destination, mapping.destination)
            }
            guard sources.count == attributes.count, destinations.count == attributes.count, !sources.isEmpty else {
                continue
            }
            let before = groupedCounts(sources, objects(of: source, context.oldLayout, context.oldSchema))
            let after = groupedCounts(
                destinations, objects(of: mapping.destination, context.newLayout, context.newSchema))
            guard try context.integer("SELECT count(*) FROM (SELECT 1 FROM (\(before) EXCEPT \(after)) LIMIT 1)") == 0
            else {
                throw AuditFailure(
                    entity: mapping.destination, property: attributes.map(\.destination).joined(separator: ", "),
                    expected: "the values of \(source), copied", found: "others")
            }
        }
    }

    private func groupedCounts(_ columns: [String], _ objects: String) -> String {
        let names = columns.map { "+x.\(quoted($0))" }.joined(separator: ", ")
        return "SELECT \(names), count(*) FROM \(objects) GROUP BY \(names)"
    }

    private func checkLinks(_ mapping: CopiedEntity, _ relationship: (source: String, destination: String)) throws {
        guard let source = mapping.source,
            let before = try linkCount(of: relationship.source, in: source, context.oldLayout, context.oldSchema),
            let after = try linkCount(
                of: relationship.destination, in: mapping.destination, context.newLayout, context.newSchema)
        else { return }
        guard try before == after || linkedCount(of: relationship, in: mapping) == after else {
            throw AuditFailure(
                entity: mapping.destination, property: relationship.destination, expected: "\(before) links",
                found: "\(after)")
        }
    }

    /// Returns the number of the entity's objects that have a link of a one-to-one relationship, whichever of its two
    /// columns records the link: one may lack it, and the migration then sets it from the other. Returns nil if the
    /// mapping doesn't copy both ends.
    private func linkedCount(
        of relationship: (source: String, destination: String), in mapping: CopiedEntity
    ) throws -> Int64? {
        let (old, new) = (context.oldLayout, context.newLayout)
        guard let source = mapping.source,
            let declaring = new.tree.declaring(relationship.destination, of: mapping.destination),
            let end = new.tree.relationship(PropertyKey(entity: declaring, name: relationship.destination)),
            let inverse = new.tree.inverse(of: end), new.tree.relationship(inverse)?.isToMany == false,
            let other = entities.first(where: { $0.destination == end.destinationEntityName }),
            let owner = other.source,
            let name = other.relationships.first(where: { $0.destination == inverse.name })?.source,
            let former = old.tree.declaring(name, of: owner),
            let ownKey = old.tree.declaring(relationship.source, of: source).map({
                PropertyKey(entity: $0, name: relationship.source)
            }),
            let own = try old.links(of: ownKey, in: context.oldSchema), own.form == .owner,
            let mirrored = try old.links(of: PropertyKey(entity: former, name: name), in: context.oldSchema),
            mirrored.form == .owner
        else { return nil }
        let table = context.oldSchema.qualified(mirrored.table)
        return try context.integer(
            "SELECT count(*) FROM \(objects(of: source, old, context.oldSchema)) AND "
                + "(x.\(quoted(own.target)) IN (SELECT Z_PK FROM \(table)) OR x.Z_PK IN (SELECT \(quoted(mirrored.target)) "
                + "FROM \(table) WHERE Z_ENT = \(old.tree.number(of: owner)) AND \(quoted(mirrored.target)) IS NOT NULL))"
        )
    }

    /// Returns the number of links from the entity's objects to existing objects.
    private func linkCount(
        of name: String, in entity: String, _ layout: AuditLayout, _ schema: AuditSchema
    ) throws -> Int64? {
        guard let declaring = layout.tree.declaring(name, of: entity) else { return nil }
        let key = PropertyKey(entity: declaring, name: name)
        guard let relationship = layout.tree.relationship(key), let columns = try layout.links(of: key, in: schema)
        else { return nil }
        let ownerTable = layout.tree.table(of: entity)
        let targetTable = layout.tree.table(of: relationship.destinationEntityName)
        // A link in the row of its owner or target needs no search for that row.
        let ownerEntity =
            columns.form == .owner && sameName(columns.table, ownerTable)
            ? "l.Z_ENT"
            : "(SELECT Z_ENT FROM \(schema.qualified(ownerTable)) WHERE Z_PK = l.\(quoted(columns.owner)))"
        let isThere =
            columns.form == .target && sameName(columns.table, targetTable)
            ? ""
            : " AND EXISTS (SELECT 1 FROM \(schema.qualified(targetTable)) WHERE Z_PK = l.\(quoted(columns.target)))"
        return try context.integer(
            "SELECT count(*) FROM \(schema.qualified(columns.table)) AS l WHERE l.\(quoted(columns.column)) IS NOT NULL "
                + "AND \(ownerEntity) = \(layout.tree.number(of: entity))\(isThere)")
    }
}
