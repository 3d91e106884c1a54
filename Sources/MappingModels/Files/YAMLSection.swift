import FoundationEssentials
import Yams

/// A YAML mapping whose keys are known.
struct YAMLSection {
    let line: Int?
    private let members: [String: YAMLValue]

    /// Throws `MappingFault` for another kind of node, and for a key that isn't among `keys`.
    init(_ node: Node, _ what: String, keys: Set<String>) throws(MappingFault) {
        line = node.mark?.line
        var members: [String: YAMLValue] = [:]
        for (name, value) in try YAMLValue(node).members(what) {
            guard keys.contains(name) else {
                throw MappingFault(
                    "\(what) has no “\(name)”", remedy: "there are " + keys.sorted().joined(separator: ", "),
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

/// One value in YAML, read as what is expected there.
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

    private func fault(_ what: String, _ expected: String) -> MappingFault {
        MappingFault("“\(what)” is no \(expected)", remedy: "write \(expected) there", line: line)
    }

    func text(_ what: String) throws(MappingFault) -> String {
        guard let scalar = node.scalar, !isNull else { throw fault(what, "text") }
        return scalar.string
    }

    func integer(_ what: String) throws(MappingFault) -> Int {
        guard let value = Int(try text(what)) else { throw fault(what, "number") }
        return value
    }

    func truth(_ what: String) throws(MappingFault) -> Bool {
        switch try text(what).lowercased() {
        case "true", "yes": return true
        case "false", "no": return false
        default: throw fault(what, "yes or no")
        }
    }

    func list(_ what: String) throws(MappingFault) -> [YAMLValue] {
        guard let sequence = node.sequence else { throw fault(what, "list") }
        return sequence.map { YAMLValue($0) }
    }

    /// In the order of the file.
    func members(_ what: String) throws(MappingFault) -> [(name: String, value: YAMLValue)] {
        guard let mapping = node.mapping else { throw fault(what, "mapping of names to values") }
        var found: [(String, YAMLValue)] = []
        for (key, value) in mapping {
            guard let name = key.scalar?.string else { throw fault(what, "mapping of names to values") }
            found.append((name, YAMLValue(value, keyLine: key.mark?.line)))
        }
        return found
    }

    func texts(_ what: String) throws(MappingFault) -> [String: String] {
        var found: [String: String] = [:]
        for (name, value) in try members(what) { found[name] = try value.text(name) }
        return found
    }

    func hash(_ what: String) throws(MappingFault) -> [UInt8] {
        guard let bytes = [UInt8](hexadecimal: try text(what)), bytes.count == 32 else {
            throw fault(what, "version hash of 64 hexadecimal digits")
        }
        return bytes
    }

    func expression(_ what: String) throws(MappingFault) -> MappingExpression {
        do { return try MappingExpression(format: try text(what)) } catch {
            throw Self.fault(error, what, line)
        }
    }

    func predicate(_ what: String) throws(MappingFault) -> MappingPredicate {
        do { return try MappingPredicate(format: try text(what)) } catch {
            throw Self.fault(error, what, line)
        }
    }

    private static func fault(_ error: any Error, _ what: String, _ line: Int?) -> MappingFault {
        if let fault = error as? MappingFault { return fault }
        return MappingFault(
            "“\(what)” can't be read: \(error)", remedy: "see Documentation/MappingModels.md for what may stand there",
            line: line)
    }
}
