import PropertyLists

/// A writer of models in the form of `NSKeyedArchiver`, laid out like the model caches that Core Data writes into
/// stores.
///
/// The archive contains everything that `ArchivedModelReader` reads. It leaves out what depends on a predicate that
/// isn't in format syntax (`ModelPredicates`): without its condition, a fetch request or index would be another one.
struct ArchivedModelWriter {
    private let model: ManagedObjectModel
    private var builder = KeyedArchiveBuilder()
    private var entityNumbers: [String: Int] = [:]
    /// The object numbers, by entity and property.
    private var propertyNumbers: [[String]: Int] = [:]
    private let root: Int

    static func archive(_ model: ManagedObjectModel) -> [UInt8] {
        var writer = ArchivedModelWriter(model)
        return writer.archive()
    }

    private init(_ model: ManagedObjectModel) {
        self.model = model
        root = builder.reserve()
        for entity in model.entities {
            entityNumbers[entity.name] = builder.reserve()
            for property in archived(entity) { propertyNumbers[[entity.name, property.name]] = builder.reserve() }
        }
    }

    /// Returns the archived properties. Core Data lists inherited properties with an entity's own.
    private func archived(_ entity: EntityDescription) -> [PropertyDescription] {
        model.properties(of: entity).filter { property in
            if case .fetched(let fetched) = property { fetched.fetchRequest.hasReadablePredicate } else { true }
        }
    }

    private mutating func archive() -> [UInt8] {
        for entity in model.entities { define(entity) }
        let names = model.entities.map(\.name)
        let keys = builder.array(names.map { builder.text($0) })
        let mapping = builder.object(
            "NSKnownKeysMappingStrategy1",
            ["keys": keys, "length": .integer(Int64(names.count)), "version": .integer(1)])
        let values = builder.array(names.map { .uid(entityNumbers[$0] ?? 0) })
        let entities = builder.object(
            "NSKnownKeysDictionary1",
            [
                "values": values, "searchMapping": mapping, "version": .integer(1),
                "emptyToken": builder.text("__empty_slot_token_4c24_98dc_ac1e_b773__"),
            ])
        let identifiers = model.versionIdentifiers.sorted { $0.precedes($1) }
        let templates = model.fetchRequestTemplates.filter(\.hasReadablePredicate).map { ($0.name, request($0)) }
        var fields: [String: PropertyListValue] = [
            "NSEntities": entities,
            "NSFetchRequestTemplates": templates.isEmpty ? KeyedArchiveBuilder.null : builder.dictionary(templates),
            "NSVersionIdentifiers": builder.array(identifiers.map { builder.text($0) }, "NSSet"),
        ]
        if !model.configurations.isEmpty {
            let members = model.configurations.sorted { $0.key.precedes($1.key) }.map { name, entities in
                (name, builder.array(entities.compactMap { entityNumbers[$0].map { .uid($0) } }, "NSSet"))
            }
            fields["NSConfigurations"] = builder.dictionary(members)
        }
        builder.define(root, as: "NSManagedObjectModel", fields)
        return builder.archive(root: root)
    }

    private func reference(to entity: String?) -> PropertyListValue { .uid(entity.flatMap { entityNumbers[$0] } ?? 0) }

    // MARK: Entities

    private mutating func define(_ entity: EntityDescription) {
        let subentities = model.subentities(of: entity).map { ($0.name, reference(to: $0.name)) }
        var members: [(String, PropertyListValue)] = []
        for property in archived(entity) {
            define(property, of: entity.name)
            members.append((property.name, .uid(propertyNumbers[[entity.name, property.name]] ?? 0)))
        }
        var fields: [String: PropertyListValue] = [
            "NSEntityName": builder.text(entity.name),
            "NSClassNameForEntity": builder.text(entity.managedObjectClassName),
            "NSManagedObjectModel": .uid(root), "NSSuperentity": reference(to: entity.superentityName),
            "NSSubentities": builder.dictionary(subentities), "NSProperties": builder.dictionary(members),
            "NSRenamingIdentifier": builder.text(entity.renamingIdentifier),
            "NSVersionHashModifier": builder.text(entity.versionHashModifier),
            "NSUserInfo": userInfo(entity.userInfo),
        ]
        if entity.isAbstract { fields["NSIsAbstract"] = .boolean(true) }
        if !entity.uniquenessConstraints.isEmpty { fields["NSUniqueTuples"] = tuples(entity.uniquenessConstraints) }
        if !entity.compoundIndexes.isEmpty { fields["NSCompoundIndexes"] = tuples(entity.compoundIndexes) }
        if !entity.indexes.isEmpty {
            let indexes = entity.indexes.filter(\.hasReadablePredicate).map { index($0, of: entity.name) }
            fields["NSFetchIndexDescriptions"] = builder.array(indexes, "NSMutableArray")
        }
        builder.define(entityNumbers[entity.name] ?? 0, as: "NSEntityDescription", fields)
    }

    private mutating func userInfo(_ userInfo: [String: String]) -> PropertyListValue {
        let members = userInfo.sorted { $0.key.precedes($1.key) }.map { ($0.key, builder.text($0.value)) }
        return builder.dictionary(members, "NSDictionary")
    }

    private mutating func tuples(_ tuples: [[String]]) -> PropertyListValue {
        let arrays = tuples.map { tuple in builder.array(tuple.map { builder.text($0) }, "NSMutableArray") }
        return builder.array(arrays, "NSMutableArray")
    }

    private mutating func index(_ index: FetchIndexDescription, of entity: String) -> PropertyListValue {
        let number = builder.reserve()
        let elements = index.elements.map { element in
            builder.object(
                "NSFetchIndexElementDescription",
                [
                    "NSPropertyName": builder.text(element.property), "NSAscending": .boolean(element.isAscending),
                    "NSFetchIndexElementType": .integer(Int64(element.kind.rawValue)),
                    "NSFetchIndexDescription": .uid(number),
                ])
        }
        builder.define(
            number, as: "NSFetchIndexDescription",
            [
                "NSIndexName": builder.text(index.name), "NSIndexElements": builder.array(elements),
                "NSEntity": reference(to: entity),
                "NSPartialIndexPredicate": builder.predicate(format: index.partialIndexPredicate),
            ])
        return .uid(number)
    }

    // MARK: Properties

    private mutating func define(_ property: PropertyDescription, of entity: String) {
        let number = propertyNumbers[[entity, property.name]] ?? 0
        switch property {
        case .attribute(let attribute):
            var writer = ArchivedAttributeWriter(builder)
            let (className, fields) = writer.fields(attribute, entity: reference(to: entity))
            builder = writer.builder
            builder.define(number, as: className, fields)
        case .relationship(let relationship):
            builder.define(number, as: "NSRelationshipDescription", fields(relationship, of: entity))
        case .fetched(let fetched):
            builder.define(number, as: "NSFetchedPropertyDescription", fields(fetched, of: entity))
        }
    }

    private mutating func fields(
        _ fetched: FetchedPropertyDescription, of entity: String
    ) -> [String: PropertyListValue] {
        // Core Data's own caches say so of each: a fetched property is optional, transient and read-only.
        var flags = ArchivedFlags(userInfo: fetched.userInfo, modifier: nil)
        flags.set(0x2, "NSIsOptional", if: true)
        flags.set(0x4, "NSIsReadOnly", if: true)
        flags.set(0x8, "NSIsTransient", if: true)
        var fields: [String: PropertyListValue] = [
            "NSPropertyName": builder.text(fetched.name), "NSEntity": reference(to: entity),
            "NSRenamingIdentifier": builder.text(fetched.renamingIdentifier),
            "NSFetchRequest": request(fetched.fetchRequest),
            "_NSFetchRequestEntityName": builder.text(fetched.fetchRequest.entityName),
        ]
        fields.merge(flags.fields) { _, new in new }
        if !fetched.userInfo.isEmpty { fields["NSUserInfo"] = userInfo(fetched.userInfo) }
        return fields
    }

    private mutating func request(_ request: FetchRequestTemplate) -> PropertyListValue {
        let null = KeyedArchiveBuilder.null
        var fields: [String: PropertyListValue] = [
            "NSEntity": reference(to: request.entityName), "NSPredicate": builder.predicate(format: request.predicate),
            "NSFetchLimit": .integer(Int64(request.fetchLimit)), "NSFetchOffset": .integer(0),
            "NSBatchSize": .integer(Int64(request.fetchBatchSize)), "NSAllocationType": .integer(0),
            "NSResultType": .integer(0), "NSHasFetchRequestFlags": .boolean(true),
            // Includes subentities, pending changes and property values, and returns objects as faults: the defaults.
            "NSFetchRequestFlags": .integer(30), "NSHavingPredicate": null,
            "NSRelationshipKeyPathsForPrefetching": null, "NSSortDescriptors": null, "NSValuesToFetch": null,
            "NSValuesToGroupBy": null,
        ]
        if entityNumbers[request.entityName] == nil { fields["NSEntityName"] = builder.text(request.entityName) }
        return builder.object("NSFetchRequest", fields)
    }

    private mutating func fields(
        _ relationship: RelationshipDescription, of entity: String
    ) -> [String: PropertyListValue] {
        let destination = relationship.destinationEntityName
        var fields: [String: PropertyListValue] = [
            "NSPropertyName": builder.text(relationship.name), "NSEntity": reference(to: entity),
            "NSRenamingIdentifier": builder.text(relationship.renamingIdentifier),
            "NSDestinationEntity": reference(to: destination), "_NSDestinationEntityName": builder.text(destination),
            "NSDeleteRule": .integer(Int64(relationship.deleteRule.rawValue)),
            "NSMinCount": .integer(Int64(relationship.minCount)), "NSMaxCount": .integer(Int64(relationship.maxCount)),
            "_NSInverseRelationshipName": builder.text(relationship.inverseName),
            "NSInverseRelationship": .uid(
                relationship.inverseName.flatMap { propertyNumbers[[destination, $0]] } ?? 0),
        ]
        var flags = ArchivedFlags(userInfo: relationship.userInfo, modifier: relationship.versionHashModifier)
        flags.set(0x2, "NSIsOptional", if: relationship.isOptional)
        flags.set(0x4, "NSIsReadOnly", if: relationship.isReadOnly)
        flags.set(0x8, "NSIsTransient", if: relationship.isTransient)
        flags.set(0x400, "NSIsOrdered", if: relationship.isOrdered)
        fields.merge(flags.fields) { _, new in new }
        if let modifier = relationship.versionHashModifier { fields["NSVersionHashModifier"] = builder.text(modifier) }
        if !relationship.userInfo.isEmpty { fields["NSUserInfo"] = userInfo(relationship.userInfo) }
        return fields
    }
}

/// A property's flags. All are packed into `_P`; those that are set also have a field of their own.
struct ArchivedFlags {
    private var packed: Int64 = 0x1
    private(set) var fields: [String: PropertyListValue] = [:]

    init(userInfo: [String: String], modifier: String?, hasRules: Bool = false) {
        if !hasRules { packed |= 0x30 }
        if userInfo.isEmpty { packed |= 0x40 }
        if modifier == nil { packed |= 0x80 }
        fields["_P"] = .integer(packed)
    }

    mutating func set(_ bit: Int64, _ field: String?, if isSet: Bool) {
        guard isSet else { return }
        packed |= bit
        fields["_P"] = .integer(packed)
        if let field { fields[field] = .boolean(true) }
    }
}
