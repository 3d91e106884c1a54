import FoundationEssentials
import Yams

/// A YAML mapping with a fixed set of keys.
struct YAMLSection {
    let line: Int?
    private let members: [String: YAMLValue]

    /// Throws `MappingFault` for another type of node, and for a key that isn't in `keys`.
    init(_ node: Node, _ subject: String, keys: Set<String>) throws(MappingFault) {
        line = node.mark?.line
        var members: [String: YAMLValue] = [:]
        for (name, value) in try YAMLValue(node).members(subject) {
            guard keys.contains(name) else {
                throw MappingFault(
                    "\(subject) has no key “\(name)”", remedy: "the keys are " + keys.sorted().joined(separator: ", "),
                    line: value.line)
            }
            members[name] = value
        }
        self.members = members
    }

    subscript(key: String) -> YAMLValue? { members[key] }

    func required(_ key: String) throws(MappingFault) -> YAMLValue {
        guard let value = members[key] else {
            throw MappingFault("“\(key)” is missing", remedy: "add \(key):", line: line)
        }
        return value
    }
}

/// A YAML value, read as the type expected at its place. The methods throw `MappingFault` for another type; `key` is the
/// value's name in the message.
struct YAMLValue {
    let node: Node
    private let keyLine: Int?

    init(_ node: Node, keyLine: Int? = nil) {
        self.node = node
        self.keyLine = keyLine
    }

    var line: Int? { keyLine ?? node.mark?.line }

    var isNull: Bool {
        guard let scalar = node.scalar, scalar.style == .plain else { return false }
        return ["", "~", "null", "Null", "NULL"].contains(scalar.string)
    }

    private func fault(_ key: String, _ expected: String) -> MappingFault {
        MappingFault("“\(key)” is not \(expected)", remedy: "write \(expected) there", line: line)
    }

    func text(_ key: String) throws(MappingFault) -> String {
        guard let scalar = node.scalar, !isNull else { throw fault(key, "text") }
        return scalar.string
    }

    func integer(_ key: String) throws(MappingFault) -> Int {
        guard let value = Int(try text(key)) else { throw fault(key, "a number") }
        return value
    }

    func boolean(_ key: String) throws(MappingFault) -> Bool {
        switch try text(key).lowercased() {
        case "true", "yes": return true
        case "false", "no": return false
        default: throw fault(key, "yes or no")
        }
    }

    func list(_ key: String) throws(MappingFault) -> [YAMLValue] {
        guard let sequence = node.sequence else { throw fault(key, "a list") }
        return sequence.map { YAMLValue($0) }
    }

    /// Returns the members in the order of the file.
    func members(_ key: String) throws(MappingFault) -> [(name: String, value: YAMLValue)] {
        guard let mapping = node.mapping else { throw fault(key, "a mapping of names to values") }
        var found: [(String, YAMLValue)] = []
        for (nameNode, value) in mapping {
            guard let name = nameNode.scalar?.string else { throw fault(key, "a mapping of names to values") }
            found.append((name, YAMLValue(value, keyLine: nameNode.mark?.line)))
        }
        return found
    }

    func texts(_ key: String) throws(MappingFault) -> [String: String] {
        var found: [String: String] = [:]
        for (name, value) in try members(key) { found[name] = try value.text(name) }
        return found
    }

    func hash(_ key: String) throws(MappingFault) -> [UInt8] {
        guard let bytes = [UInt8](hexadecimal: try text(key)), bytes.count == 32 else {
            throw fault(key, "a version hash of 64 hexadecimal digits")
        }
        return bytes
    }

    func expression(_ key: String) throws(MappingFault) -> MappingExpression {
        do { return try MappingExpression(format: try text(key)) } catch {
            throw Self.fault(error, key, line: line)
        }
    }

    func predicate(_ key: String) throws(MappingFault) -> MappingPredicate {
        do { return try MappingPredicate(format: try text(key)) } catch {
            throw Self.fault(error, key, line: line)
        }
    }

    private static func fault(_ error: any Error, _ key: String, line: Int?) -> MappingFault {
        if let fault = error as? MappingFault { return fault }
        return MappingFault(
            "“\(key)” can't be read: \(error)", remedy: "see Documentation/MappingModels.md for the permitted values",
            line: line)
    }
}
