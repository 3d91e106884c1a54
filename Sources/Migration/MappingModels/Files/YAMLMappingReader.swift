import ManagedObjectModels
import StrictYAML

/// Reads a mapping model in groupstore's own YAML form, strictly: an unknown key, a value of the wrong type or an
/// invalid expression is an error with its line. Unlisted properties are automatic.
enum YAMLMappingReader {
    /// An alias stands for a copy, which the reader's limits count: aliases can expand a small file exponentially.
    private static let reader = YAMLReader(aliases: .copied, maximumBytes: 4 << 20, maximumDepth: 64)

    /// Throws `MappingFault`.
    static func read(_ bytes: [UInt8]) throws(MappingFault) -> MappingModel {
        guard let root = try MappingFault.valid({ () throws(YAMLError) in try reader.root(of: bytes) }) else {
            throw MappingFault("the file is empty", remedy: "begin with mapping: 1")
        }
        return try mappingModel(
            YAMLMappingSection(
                YAMLMappingValue(node: root), "the file",
                keys: ["mapping", "source", "destination", "before", "entities", "after"]))
    }

    private static func mappingModel(_ root: YAMLMappingSection) throws(MappingFault) -> MappingModel {
        guard try root.required("mapping").integer("mapping") == 1 else {
            throw MappingFault("this version of the mapping form is unknown", remedy: "use mapping: 1", line: root.line)
        }
        var mappings: [EntityMapping] = []
        for node in try root.required("entities").list("entities") { mappings.append(try entityMapping(node)) }
        var model = MappingModel(entityMappings: mappings)
        model.sourceVersionName = try root["source"]?.text("source")
        model.destinationVersionName = try root["destination"]?.text("destination")
        model.preparations = try steps(root["before"], "before")
        model.completions = try steps(root["after"], "after")
        return model
    }

    // MARK: Steps

    private static func steps(_ node: YAMLMappingValue?, _ key: String) throws(MappingFault) -> [MappingStep] {
        guard let node else { return [] }
        var steps: [MappingStep] = []
        for element in try node.list(key) {
            let section = try YAMLMappingSection(element, key, keys: ["drop", "where", "sql"])
            let condition = try section["where"].map { (value) throws(MappingFault) in try value.predicate("where") }
            switch (section["drop"], section["sql"]) {
            case (let entity?, nil): steps.append(.drop(entity: try entity.text("drop"), where: condition ?? nil))
            case (nil, let statement?) where condition == nil: steps.append(.sql(try statement.text("sql")))
            default:
                throw MappingFault(
                    "a step is either drop, optionally with where, or sql",
                    remedy: "see Documentation/MappingModels.md", line: section.line)
            }
        }
        return steps
    }

    // MARK: Entity mappings

    private static func entityMapping(_ value: YAMLMappingValue) throws(MappingFault) -> EntityMapping {
        let section = try YAMLMappingSection(
            value, "an entity mapping",
            keys: [
                "name", "from", "to", "where", "policy", "attributes", "relationships", "user-info", "hashes",
                "only-listed",
            ])
        let source = try section["from"]?.text("from")
        let destination = try section["to"]?.text("to")
        guard source != nil || destination != nil else {
            throw MappingFault(
                "an entity mapping needs from:, to: or both", remedy: "name the entities", line: section.line)
        }
        let policy = try section["policy"]?.text("policy")
        let name = try section["name"]?.text("name") ?? EntityMapping.name(from: source, to: destination)
        var mapping = EntityMapping(
            name: name, kind: EntityMapping.kind(from: source, to: destination, hasPolicy: policy != nil),
            sourceEntityName: source, destinationEntityName: destination)
        mapping.entityMigrationPolicyClassName = policy
        mapping.filter = try section["where"]?.predicate("where")
        mapping.userInfo = try section["user-info"]?.texts("user-info") ?? [:]
        if let hashes = section["hashes"] { try read(hashes, into: &mapping) }
        mapping.attributeMappings = try properties(section["attributes"], "attributes", isAttribute: true)
        mapping.relationshipMappings = try properties(section["relationships"], "relationships", isAttribute: false)
        let onlyListed = try section["only-listed"]?.boolean("only-listed")
        mapping.mapsOnlyWhatIsListed = onlyListed ?? (destination == nil)
        return mapping
    }

    private static func read(_ value: YAMLMappingValue, into mapping: inout EntityMapping) throws(MappingFault) {
        let section = try YAMLMappingSection(value, "hashes", keys: ["from", "to"])
        mapping.sourceEntityVersionHash = try section["from"]?.hash("from")
        mapping.destinationEntityVersionHash = try section["to"]?.hash("to")
    }

    // MARK: Properties

    private static func properties(
        _ value: YAMLMappingValue?, _ key: String, isAttribute: Bool
    ) throws(MappingFault) -> [PropertyMapping] {
        guard let value else { return [] }
        var properties: [PropertyMapping] = []
        for (name, member) in try value.members(key) {
            properties.append(try property(name, member, isAttribute: isAttribute))
        }
        return properties.sorted { $0.name.precedes($1.name) }
    }

    /// Reads one property: `~` for a new value, `automatic`, an expression, or, for a relationship, an entity mapping
    /// and the key path to its older objects.
    private static func property(
        _ name: String, _ value: YAMLMappingValue, isAttribute: Bool
    ) throws(MappingFault) -> PropertyMapping {
        if value.node.isNull { return PropertyMapping(name: name, valueExpression: nil) }
        if value.node.isMapping {
            let keys: Set<String> = isAttribute ? ["value", "user-info"] : ["value", "mapping", "from", "user-info"]
            let section = try YAMLMappingSection(value, name, keys: keys)
            var mapping = try section["value"].map { (value) throws(MappingFault) in
                try property(name, value, isAttribute: true)
            }
            if let path = section["from"] {
                guard mapping == nil else {
                    throw MappingFault("“\(name)” has both value: and from:", remedy: "keep one", line: section.line)
                }
                mapping = PropertyMapping(
                    name: name, valueExpression: try instances(section["mapping"], path))
            }
            var result = mapping ?? .automatic(name)
            result.userInfo = try section["user-info"]?.texts("user-info") ?? [:]
            return result
        }
        let text = try value.text(name)
        if text == "automatic" { return .automatic(name) }
        return PropertyMapping(name: name, valueExpression: try value.expression(name))
    }

    private static func instances(_ mapping: YAMLMappingValue?, _ path: YAMLMappingValue) throws(MappingFault)
        -> MappingExpression
    {
        let keyPath = try path.text("from")
        if let mapping { return .destinationInstances(of: try mapping.text("mapping"), keyPath) }
        let last = keyPath.split(separator: ".").last.map(String.init) ?? keyPath
        return .destinationInstances(ofRelationship: last, keyPath)
    }
}
