import AgentProtocol
import CoreDataStore
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import StoreMigration

/// The report of `inspect` on a Core Data store's entities.
struct EntityReport {
    /// The entities, with the names of the store's own model if that is known.
    let entities: [CoreDataMetadata.Entity]
    private let counts: ObjectCounts
    /// The store's own model; nil if it is unknown.
    private let model: ManagedObjectModel?
    /// Files that objects refer to and that are missing; nil if it isn't known which attributes are stored in files.
    let missingFiles: [ExternalReferences.Missing]?

    /// Reads the report. Returns nil if the store isn't Core Data's. `version` is the store's version, if it was found.
    /// Throws `StoreError`, `SystemError`.
    init?(_ location: StoreLocation, _ version: ModelVersion?) throws {
        let found = try StoreReader.read(location) { reader in
            try StoreModel(reader).map { store in
                let model = version?.model ?? store.cachedModel
                let entities = (model.map(store.metadata.named) ?? store.metadata).entities
                let missing = try model.flatMap { try ExternalReferences.missing(reader, $0) }
                return (model, entities, try ObjectCounts(reader, entities), missing)
            }
        }
        guard let found else { return nil }
        (model, entities, counts, missingFiles) = found
    }

    func objects(of entity: CoreDataMetadata.Entity) -> Int64? { counts[entity] }

    /// Returns the relationships that the entity itself declares.
    private func relationships(of entity: CoreDataMetadata.Entity) -> [RelationshipDescription] {
        model?.entity(named: entity.name)?.relationships.sorted { $0.name.precedes($1.name) } ?? []
    }

    func relationshipLines() -> [String] {
        var table = TextTable()
        for entity in entities {
            for relationship in relationships(of: entity) {
                table.add(
                    .text("\(entity.name).\(relationship.name)"), .text("→ " + relationship.destinationEntityName),
                    .text(relationship.words))
            }
        }
        let lines = table.lines(indent: "  ")
        return lines.isEmpty ? [] : ["", "  relationships"] + lines
    }

    func missingFileLines() -> [String] {
        guard let missingFiles, !missingFiles.isEmpty else { return [] }
        return ["", "  missing"] + missingFiles.map { "  " + $0.sentence }
    }

    func missingFilesJSON() -> JSONValue? {
        missingFiles.map { missing in
            .array(
                missing.map { entry in
                    .object([
                        "entity": .string(entry.entity), "attribute": .string(entry.attribute),
                        "files": .integer(Int64(entry.files)), "first": .string(entry.first),
                    ])
                })
        }
    }

    /// Returns the relationships, or nil if no model describes them.
    func json(_ entity: CoreDataMetadata.Entity) -> JSONValue? {
        guard model?.entity(named: entity.name) != nil else { return nil }
        return .array(relationships(of: entity).map { .object($0.json) })
    }
}

extension RelationshipDescription {
    fileprivate var words: String {
        var words = [isToMany ? "to-many" : "to-one"]
        if isOrdered { words.append("ordered") }
        if isOptional { words.append("optional") }
        words.append(inverseName.map { "inverse \($0)" } ?? "no inverse")
        words.append("delete rule \(deleteRule.name)")
        return words.joined(separator: ", ")
    }

    fileprivate var json: JSONObject {
        [
            "name": .string(name), "destination": .string(destinationEntityName), "to_many": .bool(isToMany),
            "ordered": .bool(isOrdered), "optional": .bool(isOptional),
            "inverse": inverseName.map { .string($0) } ?? .null, "delete_rule": .string(deleteRule.name),
        ]
    }
}
