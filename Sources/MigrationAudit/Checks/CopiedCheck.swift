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

/// A check of the content that a mapping model copied. Objects have new keys, so it compares how often values occur.
struct CopiedCheck {
    let context: AuditContext
    let entities: [CopiedEntity]

    func check() throws {
        for (destination, mappings) in Dictionary(grouping: entities, by: \.destination).sorted(by: { $0.key < $1.key })
        {
            guard mappings.allSatisfy(\.isComplete), context.newLayout.tree.number(of: destination) > 0 else {
                continue
            }
            try checkCount(destination, mappings)
            // The objects of several mappings can't be distinguished.
            guard mappings.count == 1, let mapping = mappings.first, mapping.source != nil else { continue }
            try checkValues(mapping)
            for relationship in mapping.relationships { try checkLinks(mapping, relationship) }
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
            let sources = attributes.compactMap { column(of: $0.source, source, context.oldLayout) }
            let destinations = attributes.compactMap {
                column(of: $0.destination, mapping.destination, context.newLayout)
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

    private func column(of attribute: String, _ entity: String, _ layout: AuditLayout) -> String? {
        layout.tree.declaring(attribute, of: entity).flatMap {
            layout.attributes[AttributeKey(entity: $0, path: [attribute])]
        }
    }

    private func checkLinks(_ mapping: CopiedEntity, _ relationship: (source: String, destination: String)) throws {
        guard let source = mapping.source,
            let before = try linkCount(of: relationship.source, in: source, context.oldLayout, context.oldSchema),
            let after = try linkCount(
                of: relationship.destination, in: mapping.destination, context.newLayout, context.newSchema)
        else { return }
        guard before == after else {
            throw AuditFailure(
                entity: mapping.destination, property: relationship.destination, expected: "\(before) links",
                found: "\(after)")
        }
    }

    /// Returns the number of links from the entity's objects to existing objects.
    private func linkCount(
        of name: String, in entity: String, _ layout: AuditLayout, _ schema: AuditSchema
    ) throws -> Int64? {
        guard let declaring = layout.tree.declaring(name, of: entity) else { return nil }
        let key = PropertyKey(entity: declaring, name: name)
        guard let relationship = layout.tree.relationship(key), let columns = try layout.links(of: key, in: schema)
        else { return nil }
        let target = schema.qualified(layout.tree.table(of: relationship.destinationEntityName))
        return try context.integer(
            "SELECT count(*) FROM \(schema.qualified(columns.table)) AS l WHERE l.\(quoted(columns.column)) IS NOT NULL "
                + "AND (SELECT Z_ENT FROM \(schema.qualified(layout.tree.table(of: entity))) "
                + "WHERE Z_PK = l.\(quoted(columns.owner))) = \(layout.tree.number(of: entity)) "
                + "AND EXISTS (SELECT 1 FROM \(target) WHERE Z_PK = l.\(quoted(columns.target)))")
    }
}
