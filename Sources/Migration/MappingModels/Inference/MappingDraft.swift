import CoreDataStore
import ManagedObjectModels

/// A mapping model made from two models, to be edited: the inferred mapping with every property written out, and the
/// places where a person must decide.
///
/// ```swift
/// let draft = MappingDraft(from: old, to: new)
/// print(draft.yaml)
/// ```
public struct MappingDraft: Sendable {
    /// The mapping model. Where a mapping can be inferred, it makes the same objects, values and links.
    public private(set) var mappingModel: MappingModel
    /// What a person must or may decide, in the order of the mapping model.
    public private(set) var places: [Place] = []

    /// A place in the mapping model that needs a decision.
    public struct Place: Equatable, Sendable {
        /// The name of the entity mapping; nil for the whole mapping model.
        public let mapping: String?
        /// The name of the property; nil for the whole entity mapping.
        public let property: String?
        /// True if no value can be inferred and somebody must write one; false for a remark.
        public let isOpen: Bool
        /// The reason.
        public let message: String
        /// A suggestion that helps.
        public let remedy: String
    }

    private let source: ManagedObjectModel
    private let destination: ManagedObjectModel

    /// Makes a mapping model from an older model to a newer one.
    public init(from source: ManagedObjectModel, to destination: ManagedObjectModel) {
        self.source = source
        self.destination = destination
        let (inferred, reasons) = MappingInference.attempt(from: source, to: destination)
        mappingModel = MappingModel(entityMappings: [])
        let findings = reasons + MigrationReview(source, destination).findings
        for reason in reasons where !inferred.entityMappings.contains(where: { $0.subject == reason.entity }) {
            add(nil, nil, reason)
        }
        for mapping in inferred.entityMappings { add(mapping, findings.filter { concerns($0, mapping) }) }
    }

    /// Returns true for a finding about the mapping's entity, or an error about a property that it inherits: that is
    /// reported for the ancestor only.
    private func concerns(_ finding: MigrationFinding, _ mapping: EntityMapping) -> Bool {
        guard finding.entity != mapping.subject else { return true }
        guard finding.severity == .error, finding.property != nil else { return false }
        let ancestors = [(source, mapping.sourceEntityName), (destination, mapping.destinationEntityName)]
            .flatMap { model, name in name.flatMap(model.entity(named:)).map(model.superentities) ?? [] }
        return ancestors.contains { $0.name == finding.entity }
    }

    /// The mapping model in groupstore's own form. Each place is marked by a comment: `# TO DO` if it is open.
    public var yaml: String { YAMLMappingWriter(mappingModel, places: places).text }

    /// The mapping model as the `xcmapping.xml` of an `.xcmappingmodel`, which has no comments.
    ///
    /// - Throws: ``MappingModelError`` if two entity mappings would have the same name in Xcode.
    public func xcodeDocument() throws(MappingModelError) -> String {
        var model = mappingModel.withoutHashes
        for index in model.entityMappings.indices { model.entityMappings[index].mapsOnlyWhatIsListed = true }
        return try model.xcodeDocument()
    }

    /// Names the versions that the mapping model is for; nil for a model that is no version of a bundle. Without both
    /// names, the entities' version hashes keep it from being used for other versions.
    public mutating func nameVersions(from source: String?, to destination: String?) {
        mappingModel.sourceVersionName = source
        mappingModel.destinationVersionName = destination
        guard source == nil || destination == nil else { return }
        let hashes = (self.source.entityVersionHashesByName, self.destination.entityVersionHashesByName)
        for index in mappingModel.entityMappings.indices {
            let mapping = mappingModel.entityMappings[index]
            mappingModel.entityMappings[index].sourceEntityVersionHash = mapping.sourceEntityName.flatMap {
                hashes.0[$0]
            }
            mappingModel.entityMappings[index].destinationEntityVersionHash =
                mapping.destinationEntityName.flatMap { hashes.1[$0] }
        }
    }

    private mutating func add(_ mapping: String?, _ property: String?, _ finding: MigrationFinding) {
        places.append(
            Place(
                mapping: mapping, property: property, isOpen: finding.severity == .error, message: finding.message,
                remedy: finding.remedy))
    }

    // MARK: Entities

    private mutating func add(_ inferred: EntityMapping, _ findings: [MigrationFinding]) {
        let (old, new) = (inferred.sourceEntityName, inferred.destinationEntityName)
        // An abstract entity has no objects.
        if let new, old == nil, destination.entity(named: new)?.isAbstract == true { return }
        if let old, source.entity(named: old)?.isAbstract == true { return }
        let name = unusedName(EntityMapping.name(from: old, to: new))
        var mapping = EntityMapping(
            name: name, kind: EntityMapping.kind(from: old, to: new, hasPolicy: false), sourceEntityName: old,
            destinationEntityName: new)
        mapping.mapsOnlyWhatIsListed = new == nil
        if let old, let new, destination.entity(named: new)?.isAbstract == true {
            mapping.destinationEntityName = nil
            mapping.name = unusedName(EntityMapping.name(from: old, to: nil))
            mapping.kind = .remove
            mapping.mapsOnlyWhatIsListed = true
            mappingModel.entityMappings.append(mapping)
            places.append(
                Place(
                    mapping: mapping.name, property: nil, isOpen: true,
                    message: "\(new), which \(old) became, is abstract now: its objects are removed",
                    remedy: "add “to:” with an entity that inherits from \(new), if there may be objects"))
            return
        }
        for finding in findings where finding.property == nil { add(name, nil, finding) }
        if let old = old.flatMap(source.entity(named:)), let new = new.flatMap(destination.entity(named:)) {
            addUnread(in: inferred, from: old, name)
            for property in destination.properties(of: new) where !property.isTransient {
                let remarks = findings.filter { $0.property == property.name }
                add(property, from: old, to: &mapping, inferred, remarks)
            }
        }
        mappingModel.entityMappings.append(mapping)
    }

    private func unusedName(_ name: String) -> String {
        var candidate = name
        var number = 2
        while mappingModel.entityMappings.contains(where: { $0.name == candidate }) {
            candidate = "\(name) \(number)"
            number += 1
        }
        return candidate
    }

    /// Adds a remark that names the older properties that no property of the newer entity comes from.
    private mutating func addUnread(in inferred: EntityMapping, from old: EntityDescription, _ mapping: String) {
        let read = Set((inferred.attributeMappings + inferred.relationshipMappings).compactMap(\.sourceName))
        let unread = source.properties(of: old).filter { !$0.isTransient && !read.contains($0.name) }.map(\.name)
        guard !unread.isEmpty else { return }
        places.append(
            Place(
                mapping: mapping, property: nil, isOpen: false, message: "not read: \(unread.joined(separator: ", "))",
                remedy: "none needed if their values may be lost"))
    }

    // MARK: Properties

    private mutating func add(
        _ property: PropertyDescription, from old: EntityDescription, to mapping: inout EntityMapping,
        _ inferred: EntityMapping, _ remarks: [MigrationFinding]
    ) {
        let isRefused = remarks.contains { $0.severity == .error }
        let sourceName = (inferred.attributeMappings + inferred.relationshipMappings)
            .first { $0.name == property.name }?.sourceName
        let former = sourceName.flatMap { source.property(named: $0, of: old) }.flatMap { $0.isTransient ? nil : $0 }
        var written = PropertyMapping(name: property.name, valueExpression: nil)
        switch (property, former) {
        case (.attribute(let new), .attribute(let old)?):
            guard new.derivation == nil else { return }
            // A mapping model can read external data into the store, although Core Data doesn't infer it.
            if !isRefused || AttributeConversion(from: old, to: new).isInferred {
                written.valueExpression = Self.value(of: old, for: new)
            }
            mapping.attributeMappings.append(written)
        case (.relationship(let new), .relationship(let old)?):
            if !(old.isToMany && !new.isToMany) {
                written.valueExpression = .destinationInstances(ofRelationship: old.name, old.name)
            }
            mapping.relationshipMappings.append(written)
        case (.attribute(let new), _):
            guard new.derivation == nil else { return }
            mapping.attributeMappings.append(written)
            addNewValue(new, mapping.name)
        case (.relationship, _): mapping.relationshipMappings.append(written)
        case (.fetched, _): return
        }
        for remark in remarks { add(mapping.name, property.name, remark.withMappedRemedy(former?.name)) }
    }

    /// Adds a remark with the value that a new attribute gets.
    private mutating func addNewValue(_ attribute: AttributeDescription, _ mapping: String) {
        let value = attribute.defaultValue.map { "its default, \($0)" } ?? "no value"
        places.append(
            Place(
                mapping: mapping, property: attribute.name, isOpen: false, message: "new: \(value)",
                remedy: "write an expression to compute it"))
    }

    /// Returns the older attribute's value; the default in place of none if the attribute becomes mandatory.
    private static func value(of old: AttributeDescription, for new: AttributeDescription) -> MappingExpression {
        let value = MappingExpression.source(old.name)
        let isData = new.type == .binaryData || new.type == .transformable || new.type == .composite
        guard old.isOptional, !new.isOptional, !isData, var constant = new.defaultValue else { return value }
        if case .real(let number) = constant, new.type == .float { constant = .real(Double(Float(number))) }
        let isMissing = MappingPredicate.comparison(.init(value, .equal, .constant(nil)))
        return .conditional(isMissing, .constant(constant), value)
    }
}

extension EntityMapping {
    /// The entity that findings about the mapping name.
    fileprivate var subject: String? { destinationEntityName ?? sourceEntityName }
}

extension MigrationFinding {
    /// Returns the finding with the remedy that a mapping model offers for a property that can't be inferred.
    fileprivate func withMappedRemedy(_ former: String?) -> MigrationFinding {
        guard severity == .error, let former else { return self }
        var finding = self
        finding.remedy =
            message.hasPrefix("Can not map from a to-many")
            ? "write { from: \(former) } to keep the first object, or an expression that selects one"
            : "write an expression of $source.\(former), such as CAST($source.\(former), \"NSString\")"
        return finding
    }
}
