/// What a mapping model copies from one entity to another as it is, for an audit.
package struct CopiedEntity: Equatable, Sendable {
    /// Nil for a mapping that makes objects of nothing.
    package var source: String?
    package var destination: String
    /// Whether each of the source's own objects becomes exactly one: nothing filters them, and no code of the app's does
    /// what the mapping doesn't say.
    package var isWhole: Bool
    /// The names of attributes whose values are copied unchanged, the source's and the destination's.
    package var attributes: [(source: String, destination: String)]
    /// The names of relationships whose links are copied unchanged.
    package var relationships: [(source: String, destination: String)]

    package init(
        source: String?, destination: String, isWhole: Bool,
        attributes: [(source: String, destination: String)] = [],
        relationships: [(source: String, destination: String)] = []
    ) {
        self.source = source
        self.destination = destination
        self.isWhole = isWhole
        self.attributes = attributes
        self.relationships = relationships
    }

    package static func == (one: CopiedEntity, other: CopiedEntity) -> Bool {
        one.source == other.source && one.destination == other.destination && one.isWhole == other.isWhole
            && one.attributes.elementsEqual(other.attributes, by: ==)
            && one.relationships.elementsEqual(other.relationships, by: ==)
    }
}

/// Counts what a mapping model copied: objects have new keys, so values are compared as often as they are there.
struct CopiedCheck {
    let context: AuditContext
    let entities: [CopiedEntity]

    func check() throws {
        for (destination, mappings) in Dictionary(grouping: entities, by: \.destination).sorted(by: { $0.key < $1.key })
        {
            guard mappings.allSatisfy(\.isWhole), context.new.tree.number(of: destination) > 0 else { continue }
            try checkCount(destination, mappings)
            // The objects of several mappings can't be told apart.
            guard mappings.count == 1, let mapping = mappings.first, mapping.source != nil else { continue }
            try checkValues(mapping)
            for relationship in mapping.relationships { try checkLinks(mapping, relationship) }
        }
    }

    private func objects(_ layout: AuditLayout, _ schema: AuditSchema, _ entity: String) -> String {
        "\(schema.qualified(layout.tree.table(of: entity))) AS x WHERE x.Z_ENT = \(layout.tree.number(of: entity))"
    }

    private func checkCount(_ destination: String, _ mappings: [CopiedEntity]) throws {
        let now = try context.integer("SELECT count(*) FROM \(objects(context.new, context.now, destination))") ?? 0
        var was: Int64 = 0
        for source in mappings.compactMap(\.source) {
            was += try context.integer("SELECT count(*) FROM \(objects(context.old, context.was, source))") ?? 0
        }
        guard now == was else { throw AuditFailure(entity: destination, expected: "\(was) objects", found: "\(now)") }
    }

    /// The values of each object together.
    private func checkValues(_ mapping: CopiedEntity) throws {
        guard let source = mapping.source else { return }
        for part in stride(from: 0, to: mapping.attributes.count, by: 200) {
            let some = mapping.attributes.dropFirst(part).prefix(200)
            let was = some.compactMap { column(of: $0.source, source, context.old) }
            let now = some.compactMap { column(of: $0.destination, mapping.destination, context.new) }
            guard was.count == some.count, now.count == some.count, !was.isEmpty else { continue }
            let before = counted(was, objects(context.old, context.was, source))
            let after = counted(now, objects(context.new, context.now, mapping.destination))
            guard try context.integer("SELECT count(*) FROM (SELECT 1 FROM (\(before) EXCEPT \(after)) LIMIT 1)") == 0
            else {
                throw AuditFailure(
                    entity: mapping.destination, property: some.map(\.destination).joined(separator: ", "),
                    expected: "the values of \(source), copied", found: "others")
            }
        }
    }

    private func counted(_ columns: [String], _ objects: String) -> String {
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
            let was = try links(relationship.source, source, context.old, context.was),
            let now = try links(relationship.destination, mapping.destination, context.new, context.now)
        else { return }
        guard was == now else {
            throw AuditFailure(
                entity: mapping.destination, property: relationship.destination, expected: "\(was) links",
                found: "\(now)")
        }
    }

    /// How many links the entity's objects have to objects that are there.
    private func links(
        _ name: String, _ entity: String, _ layout: AuditLayout, _ schema: AuditSchema
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
