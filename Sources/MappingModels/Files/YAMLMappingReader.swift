import Yams

/// Reads a mapping model in groupstore's own YAML form, strictly: an unknown key, a value of the wrong type or an invalid
/// expression is an error with its line. Unlisted properties are automatic.
enum YAMLMappingReader {
    private static let maximumSize = 4 << 20

    /// Throws `MappingFault`.
    static func read(_ bytes: [UInt8]) throws(MappingFault) -> MappingModel {
        guard bytes.count <= maximumSize else {
            throw MappingFault("the file is larger than \(maximumSize >> 20) MiB", remedy: "split it")
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw MappingFault("the file is not UTF-8", remedy: "name a mapping model")
        }
        // Aliases can expand a small file exponentially.
        guard let root = try compose(text), root.alias == nil, root.anchor == nil else {
            throw MappingFault("the file is empty, or uses anchors", remedy: "begin with mapping: 1")
        }
        return try mappingModel(
            YAMLSection(root, "the file", keys: ["mapping", "source", "destination", "before", "entities", "after"]))
    }

    private static func compose(_ text: String) throws(MappingFault) -> Node? {
        do { return try Yams.compose(yaml: text) } catch {
            switch error as? YamlError {
            case .scanner(_, let problem, let mark, _)?, .parser(_, let problem, let mark, _)?,
                .composer(_, let problem, let mark, _)?:
                throw MappingFault("this is not YAML: \(problem)", remedy: "fix the line", line: mark.line)
            case .duplicatedKeysInMapping(let keys, let context)?:
                throw MappingFault(
                    "\(keys.sorted().joined(separator: ", ")) appears twice", remedy: "keep one",
                    line: context.mark.line)
            default: throw MappingFault("this is not YAML: \(error)", remedy: "fix the file")
            }
        }
    }

    private static func mappingModel(_ root: YAMLSection) throws(MappingFault) -> MappingModel {
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

    private static func steps(_ node: YAMLValue?, _ key: String) throws(MappingFault) -> [MappingStep] {
        guard let node else { return [] }
        var steps: [MappingStep] = []
        for element in try node.list(key) {
            let section = try YAMLSection(element.node, key, keys: ["drop", "where", "sql"])
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

    private static func entityMapping(_ value: YAMLValue) throws(MappingFault) -> EntityMapping {
        let section = try YAMLSection(
            value.node, "an entity mapping",
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

    private static func read(_ value: YAMLValue, into mapping: inout EntityMapping) throws(MappingFault) {
        let section = try YAMLSection(value.node, "hashes", keys: ["from", "to"])
        mapping.sourceEntityVersionHash = try section["from"]?.hash("from")
        mapping.destinationEntityVersionHash = try section["to"]?.hash("to")
    }

    // MARK: Properties

    private static func properties(
        _ value: YAMLValue?, _ key: String, isAttribute: Bool
    ) throws(MappingFault) -> [PropertyMapping] {
        guard let value else { return [] }
        var properties: [PropertyMapping] = []
        for (name, member) in try value.members(key) {
            properties.append(try property(name, member, isAttribute: isAttribute))
        }
        return properties.sorted { $0.name.precedes($1.name) }
    }

    /// Reads one property: `~` for a new value, `automatic`, an expression, or, for a relationship, an entity mapping and the
    /// key path to its older objects.
    private static func property(
        _ name: String, _ value: YAMLValue, isAttribute: Bool
    ) throws(MappingFault) -> PropertyMapping {
        if value.isNull { return PropertyMapping(name: name, valueExpression: nil) }
        if value.node.mapping != nil {
            let keys: Set<String> = isAttribute ? ["value", "user-info"] : ["value", "mapping", "from", "user-info"]
            let section = try YAMLSection(value.node, name, keys: keys)
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

    private static func instances(_ mapping: YAMLValue?, _ path: YAMLValue) throws(MappingFault) -> MappingExpression {
        let keyPath = try path.text("from")
        if let mapping { return .destinationInstances(of: try mapping.text("mapping"), keyPath) }
        let last = keyPath.split(separator: ".").last.map(String.init) ?? keyPath
        return .destinationInstances(ofRelationship: last, keyPath)
    }
}
