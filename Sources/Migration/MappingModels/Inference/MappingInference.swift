import ManagedObjectModels

extension MappingModel {
    /// Infers the mapping that Core Data infers for a lightweight migration. It follows the rules that Apple documents
    /// ("Migrating your data model automatically"), and observed in-place migrations where those are silent.
    ///
    /// - Throws: ``MappingInferenceError`` with every reason why no mapping can be inferred.
    public static func inferred(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) throws -> MappingModel {
        InferenceObservation.willInfer?()
        var inference = MappingInference(source, destination)
        return try inference.mappingModel()
    }
}

/// Lets a test count the inferences of the current task, on its own thread.
package enum InferenceObservation {
    @TaskLocal package static var willInfer: (@Sendable () -> Void)?
}

/// Infers a mapping: pairs entities by renaming identifier, then the properties of each pair.
struct MappingInference {
    let source: ManagedObjectModel
    let destination: ManagedObjectModel
    private let sourceHashes: [String: [UInt8]]
    private let destinationHashes: [String: [UInt8]]
    private(set) var reasons: [MigrationFinding] = []

    init(_ source: ManagedObjectModel, _ destination: ManagedObjectModel) {
        self.source = source
        self.destination = destination
        sourceHashes = source.entityVersionHashesByName
        destinationHashes = destination.entityVersionHashesByName
    }

    mutating func mappingModel() throws -> MappingModel {
        requireUniqueIdentifiers(source.entities, "source")
        requireUniqueIdentifiers(destination.entities, "destination")
        guard reasons.isEmpty else { throw MappingInferenceError(reasons: reasons) }
        let model = pairedModel()
        guard reasons.isEmpty else { throw MappingInferenceError(reasons: reasons) }
        return model
    }

    /// Returns what can be inferred, whatever the reasons against the rest of it are, and those reasons.
    static func attempt(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) -> (model: MappingModel, reasons: [MigrationFinding]) {
        var inference = MappingInference(source, destination)
        inference.requireUniqueIdentifiers(source.entities, "source")
        inference.requireUniqueIdentifiers(destination.entities, "destination")
        let model = inference.pairedModel()
        return (model, inference.reasons)
    }

    private mutating func pairedModel() -> MappingModel {
        let pairs = Pairing(source.entities, destination.entities, identifier: \.renamingIdentifier, name: \.name)
        requireSeparateRoots(pairs)
        var mappings: [EntityMapping] = []
        for (old, new) in pairs.all { mappings.append(old.map { mapping(from: $0, to: new) } ?? addition(of: new)) }
        mappings += pairs.removed.map(removal)
        // Remove one reason at a time: if two entities swapped places, each is the other's ancestor in one of the
        // models.
        for index in reasons.indices.reversed() where isReportedForAncestor(reasons[index]) {
            reasons.remove(at: index)
        }
        return MappingModel(entityMappings: mappings)
    }

    mutating func refuse(_ entity: String, property: String? = nil, _ message: String, remedy: String) {
        reasons.append(
            MigrationFinding(
                .error, code: CoreDataError.inferredMappingModel, entity: entity, property: property, message,
                remedy: remedy))
    }

    /// Returns true if the same reason is also reported for an ancestor in either model. Both models count, since a
    /// moved entity may inherit the property from another ancestor than before.
    private func isReportedForAncestor(_ reason: MigrationFinding) -> Bool {
        guard let name = reason.entity else { return false }
        let ancestors = Set(
            [source, destination].flatMap { model in
                model.entity(named: name).map { model.superentities(of: $0).map(\.name) } ?? []
            })
        return reasons.contains {
            $0.property == reason.property && $0.message == reason.message && ancestors.contains($0.entity ?? "")
        }
    }

    // MARK: Entities

    private mutating func requireUniqueIdentifiers(_ entities: [EntityDescription], _ side: String) {
        let groups = Dictionary(grouping: entities, by: \.renamingIdentifier)
        for entities in groups.values.filter({ $0.count > 1 }).sorted(by: { $0[0].name.precedes($1[0].name) }) {
            refuse(
                entities[1].name,
                "Each \(side) entity must have a unique renaming identifier: “\(entities[1].renamingIdentifier)” is "
                    + "that of " + entities.map(\.name).joined(separator: " and ") + " too",
                remedy: "give the renaming identifier to one entity only")
        }
    }

    /// Refuses to merge hierarchies. A hierarchy's objects share one table, and objects of two tables can't be merged
    /// without new keys.
    private mutating func requireSeparateRoots(_ pairs: Pairing<EntityDescription>) {
        var roots: [String: Set<String>] = [:]
        for case (let old?, let new) in pairs.all {
            roots[destination.rootEntity(of: new).name, default: []].insert(source.rootEntity(of: old).name)
        }
        for (root, sources) in roots.sorted(by: { $0.key.precedes($1.key) }) where sources.count > 1 {
            refuse(
                root,
                "Cannot merge multiple root entity source tables into one destination entity root table: "
                    + sources.sorted().joined(separator: ", "),
                remedy: "keep the entities' hierarchies apart, or write a mapping model")
        }
    }

    private func removal(of entity: EntityDescription) -> EntityMapping {
        EntityMapping(
            name: "IEM_Remove_" + entity.name, kind: .remove, sourceEntityName: entity.name,
            destinationEntityName: nil, sourceEntityVersionHash: sourceHashes[entity.name])
    }

    private func addition(of entity: EntityDescription) -> EntityMapping {
        EntityMapping(
            name: "IEM_Add_" + entity.name, kind: .add, sourceEntityName: nil, destinationEntityName: entity.name,
            destinationEntityVersionHash: destinationHashes[entity.name])
    }

    private mutating func mapping(from old: EntityDescription, to new: EntityDescription) -> EntityMapping {
        let isSame = sourceHashes[old.name] == destinationHashes[new.name]
        var mapping = EntityMapping(
            name: (isSame ? "IEM_Copy_" : "IEM_Transform_") + new.name, kind: isSame ? .copy : .transform,
            sourceEntityName: old.name, destinationEntityName: new.name,
            sourceEntityVersionHash: sourceHashes[old.name], destinationEntityVersionHash: destinationHashes[new.name])
        let before = source.properties(of: old)
        let after = destination.properties(of: new)
        requireUniqueIdentifiers(before, of: old, "source")
        requireUniqueIdentifiers(after, of: new, "destination")
        for (was, property) in Pairing(before, after, identifier: \.renamingIdentifier, name: \.name).all {
            switch (property, was) {
            case (.attribute(let attribute), .attribute(let old)?):
                check(old, attribute, of: new.name)
                mapping.attributeMappings.append(PropertyMapping(name: attribute.name, sourceName: old.name))
            case (.relationship(let relationship), .relationship(let old)?):
                check(old, relationship, of: new.name)
                mapping.relationshipMappings.append(PropertyMapping(name: relationship.name, sourceName: old.name))
            // An attribute that was a relationship, or vice versa, is a new property.
            case (.attribute(let attribute), _):
                mapping.attributeMappings.append(PropertyMapping(name: attribute.name, sourceName: nil))
            case (.relationship(let relationship), _):
                mapping.relationshipMappings.append(PropertyMapping(name: relationship.name, sourceName: nil))
            case (.fetched, _): break
            }
        }
        return mapping
    }

    // MARK: Properties

    private mutating func requireUniqueIdentifiers(
        _ properties: [PropertyDescription], of entity: EntityDescription, _ side: String
    ) {
        // Include inherited properties: the ancestor that declares both may be new and thus unpaired.
        let groups = Dictionary(grouping: properties, by: \.renamingIdentifier)
        for properties in groups.values.filter({ $0.count > 1 }).sorted(by: { $0[0].name.precedes($1[0].name) }) {
            refuse(
                entity.name, property: properties[1].name,
                "Each \(side) property must have a unique renaming identifier: “\(properties[1].renamingIdentifier)” "
                    + "is that of " + properties.map(\.name).joined(separator: " and "),
                remedy: "give the renaming identifier to one property only")
        }
    }

    mutating func check(_ old: AttributeDescription, _ new: AttributeDescription, of entity: String) {
        // Transient values are neither read nor written.
        guard !old.isTransient, !new.isTransient else { return }
        if !AttributeConversion(from: old, to: new).isInferred {
            refuse(
                entity, property: new.name,
                "Source and destination attribute types are incompatible: \(old.type.name) and \(new.type.name)",
                remedy: "add an attribute of the new type beside the old one, or write a mapping model")
        } else if old.movesExternalDataInline(to: new) {
            refuse(
                entity, property: new.name, "Unable to use inferred mapping to move external reference into store.",
                remedy: "keep “Allows External Storage” on, or write a mapping model")
        }
    }

    mutating func check(_ old: RelationshipDescription, _ new: RelationshipDescription, of entity: String) {
        guard old.isToMany, !new.isToMany, !old.isTransient, !new.isTransient else { return }
        refuse(
            entity, property: new.name, "Can not map from a to-many to a to-one relationship",
            remedy: "keep it to-many, give it another renaming identifier (its links are then removed), "
                + "or write a mapping model that chooses one")
    }
}

extension AttributeDescription {
    /// Returns true if a value in an external file would have to move into the store: a value of this attribute, or of
    /// an element of a composite attribute.
    fileprivate func movesExternalDataInline(to new: AttributeDescription) -> Bool {
        if allowsExternalBinaryDataStorage, !new.allowsExternalBinaryDataStorage { return true }
        return Pairing(elements, new.elements, identifier: \.renamingIdentifier, name: \.name).all.contains {
            old, new in
            old?.movesExternalDataInline(to: new) ?? false
        }
    }
}

/// The conversion of one attribute's type to another's.
struct AttributeConversion {
    private let old: AttributeDescription
    private let new: AttributeDescription

    init(from old: AttributeDescription, to new: AttributeDescription) {
        self.old = old
        self.new = new
    }

    /// True if an inferred mapping may perform the conversion.
    var isInferred: Bool {
        if old.type == .composite, new.type == .composite { return elementsAreInferred }
        if old.type == new.type { return true }
        let isNumber = { (type: AttributeType) in type.isNumeric || type == .boolean }
        if isNumber(old.type), isNumber(new.type) { return true }
        let isOpaque = { (type: AttributeType) in type == .binaryData || type == .transformable }
        let allows = new.userInfo["NSMigrationAllowTypeTransformation"].map { !["", "0", "NO"].contains($0) } ?? false
        return isOpaque(old.type) && isOpaque(new.type) && allows && !old.allowsExternalBinaryDataStorage
            && !new.allowsExternalBinaryDataStorage
    }

    private var elementsAreInferred: Bool {
        Pairing(old.elements, new.elements, identifier: \.renamingIdentifier, name: \.name).all.allSatisfy { old, new in
            old.map { AttributeConversion(from: $0, to: new).isInferred } ?? true
        }
    }
}
