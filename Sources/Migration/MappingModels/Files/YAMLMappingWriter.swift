import ManagedObjectModels

extension MappingModel {
    /// The mapping model in groupstore's own YAML form, which ``MappingModelFile`` can read.
    public var yaml: String { YAMLMappingWriter(self).text }
}

/// Writes a mapping model in groupstore's own YAML form.
struct YAMLMappingWriter {
    private let model: MappingModel
    /// The places to mark by comments.
    private let places: [MappingDraft.Place]
    private var lines: [String] = []

    init(_ model: MappingModel, places: [MappingDraft.Place] = []) {
        self.model = model
        self.places = places
        write()
    }

    var text: String { lines.joined(separator: "\n") + "\n" }

    private mutating func add(indent: Int, _ key: String, _ value: String? = nil) {
        let line = String(repeating: "  ", count: indent) + key + ":"
        lines.append(value.map { line + " " + $0 } ?? line)
    }

    private mutating func write() {
        add(indent: 0, "mapping", "1")
        if let name = model.sourceVersionName { add(indent: 0, "source", Self.scalar(name)) }
        if let name = model.destinationVersionName { add(indent: 0, "destination", Self.scalar(name)) }
        mark(nil, nil, indent: 0)
        write(model.preparations, "before")
        if model.entityMappings.isEmpty {
            add(indent: 0, "entities", "[]")
        } else {
            lines.append("")
            add(indent: 0, "entities")
            for mapping in model.entityMappings { write(mapping) }
        }
        write(model.completions, "after")
    }

    /// Writes a comment for each place in the mapping.
    private mutating func mark(_ mapping: String?, _ property: String?, indent: Int) {
        for place in places where place.mapping == mapping && place.property == property {
            let text = (place.isOpen ? "TO DO: " : "") + "\(place.message) (\(place.remedy))"
            // A line break would end the comment.
            let line = String(text.map { $0.isNewline ? " " : $0 }.filter { !$0.isControl })
            lines.append(String(repeating: "  ", count: indent) + "# " + line)
        }
    }

    private mutating func write(_ steps: [MappingStep], _ key: String) {
        guard !steps.isEmpty else { return }
        lines.append("")
        add(indent: 0, key)
        for step in steps {
            switch step {
            case .drop(let entity, let condition):
                lines.append("  - drop: " + Self.scalar(entity))
                if let condition { add(indent: 2, "where", Self.scalar(condition.description)) }
            case .sql(let statement): lines.append("  - sql: " + Self.scalar(statement))
            }
        }
    }

    // MARK: Entity mappings

    private mutating func write(_ mapping: EntityMapping) {
        mark(mapping.name, nil, indent: 1)
        let first = lines.count
        let defaultName = EntityMapping.name(from: mapping.sourceEntityName, to: mapping.destinationEntityName)
        if mapping.name != defaultName { add(indent: 2, "name", Self.scalar(mapping.name)) }
        if let name = mapping.sourceEntityName { add(indent: 2, "from", Self.scalar(name)) }
        if let name = mapping.destinationEntityName { add(indent: 2, "to", Self.scalar(name)) }
        if let filter = mapping.filter { add(indent: 2, "where", Self.scalar(filter.description)) }
        if let policy = mapping.entityMigrationPolicyClassName { add(indent: 2, "policy", Self.scalar(policy)) }
        writeHashes(mapping)
        if mapping.mapsOnlyWhatIsListed, mapping.destinationEntityName != nil { add(indent: 2, "only-listed", "yes") }
        write(mapping.attributeMappings, "attributes", of: mapping.name, isAttribute: true)
        write(mapping.relationshipMappings, "relationships", of: mapping.name, isAttribute: false)
        write(mapping.userInfo, 2)
        // A list element begins with a dash.
        if first < lines.count { lines[first] = "  - " + lines[first].dropFirst(4) }
    }

    private mutating func writeHashes(_ mapping: EntityMapping) {
        let hashes = [("from", mapping.sourceEntityVersionHash), ("to", mapping.destinationEntityVersionHash)]
        guard hashes.contains(where: { $0.1 != nil }) else { return }
        add(indent: 2, "hashes")
        for case (let key, let hash?) in hashes { add(indent: 3, key, hash.hexadecimal) }
    }

    private mutating func write(
        _ mappings: [PropertyMapping], _ key: String, of entityMapping: String, isAttribute: Bool
    ) {
        guard !mappings.isEmpty else { return }
        add(indent: 2, key)
        for mapping in mappings {
            mark(entityMapping, mapping.name, indent: 3)
            let name = Self.scalar(mapping.name)
            let value = Self.value(mapping, isAttribute: isAttribute)
            guard !mapping.userInfo.isEmpty else {
                add(indent: 3, name, value)
                continue
            }
            add(indent: 3, name)
            add(indent: 4, "value", isAttribute ? value : Self.plainValue(mapping))
            write(mapping.userInfo, 4)
        }
    }

    private mutating func write(_ userInfo: [String: String], _ indent: Int) {
        guard !userInfo.isEmpty else { return }
        add(indent: indent, "user-info")
        for (key, value) in userInfo.sorted(by: { $0.key < $1.key }) {
            add(indent: indent + 1, Self.scalar(key), Self.scalar(value))
        }
    }

    private static func value(_ mapping: PropertyMapping, isAttribute: Bool) -> String {
        guard !isAttribute, case .message(.variable("manager"), let selector, let arguments)? = mapping.valueExpression,
            arguments.count == 2, case .constant(.string(let name)?) = arguments[0],
            case .keyPath(of: .variable("source"), let path) = arguments[1]
        else { return plainValue(mapping) }
        if mapping.valueExpression == .destinationInstances(of: name, path) {
            return "{ mapping: \(scalar(name, inBraces: true)), from: \(scalar(path, inBraces: true)) }"
        }
        let last = path.split(separator: ".").last.map(String.init)
        guard selector == "destinationInstancesForSourceRelationshipNamed:sourceInstances:", name == last else {
            return plainValue(mapping)
        }
        return "{ from: \(scalar(path, inBraces: true)) }"
    }

    private static func plainValue(_ mapping: PropertyMapping) -> String {
        if mapping.isAutomatic { return "automatic" }
        guard let expression = mapping.valueExpression else { return "~" }
        let text = expression.description
        return text == "automatic" ? "(automatic)" : scalar(text)
    }

    // MARK: Scalars

    private static let reserved: Set<String> = ["", "~", "null", "Null", "NULL"]

    /// Returns the text as a plain scalar if YAML reads it as text in any context, else in quotation marks.
    private static func scalar(_ text: String, inBraces: Bool = false) -> String {
        let isPlain =
            !reserved.contains(text) && !text.contains(": ") && !text.contains(" #") && !text.hasSuffix(":")
            && !text.hasSuffix(" ") && text.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value < 0x7F }
            && text.first.map { $0.isLetter || $0.isNumber || $0 == "$" || $0 == "(" || $0 == "_" } ?? false
            && !text.contains(where: { "[]{},".contains($0) && (inBraces || !text.contains("(")) })
        if isPlain, !text.contains("{") { return text }
        guard text.unicodeScalars.allSatisfy(isPrintable) else { return escaped(text) }
        return "'" + text.replacing("'", with: "''") + "'"
    }

    /// Returns true if YAML permits the character as itself, and doesn't take it for the end of a line.
    private static func isPrintable(_ character: Unicode.Scalar) -> Bool {
        switch character.value {
        case 0x20...0x7E, 0xA0...0x2027, 0x202A...0xFEFE, 0xFF00...0xFFFD, 0x1_0000...0x10_FFFF: true
        default: false
        }
    }

    private static func escaped(_ text: String) -> String {
        let escapes = text.unicodeScalars.map { character in
            switch character {
            case "\\", "\"": "\\" + String(character)
            case "\n": "\\n"
            case "\r": "\\r"
            case "\t": "\\t"
            case _ where isPrintable(character): String(character)
            default:
                "\\u" + String(repeating: "0", count: 4 - String(character.value, radix: 16).count)
                    + String(character.value, radix: 16)
            }
        }
        return "\"" + escapes.joined() + "\""
    }
}

extension Character {
    fileprivate var isControl: Bool { unicodeScalars.contains { $0.properties.generalCategory == .control } }
}
