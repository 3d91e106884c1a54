/// A value of a YAML document, with its place.
package struct YAMLNode: Equatable, Sendable {
    package enum Content: Equatable, Sendable {
        case scalar(YAMLScalar)
        case sequence([YAMLNode])
        /// In the order of the document.
        case mapping([YAMLMember])
    }

    package let content: Content
    /// Counted from 1. The place of an alias is that of its anchor.
    package let line: Int
    /// Counted from 1 in Unicode scalars.
    package let column: Int
    /// The line of the key whose value this is; nil for the root and for the elements of a list.
    package var keyLine: Int?
}

/// A scalar: its text, and how the document writes it.
package struct YAMLScalar: Equatable, Sendable {
    package enum Style: Equatable, Sendable { case plain, singleQuoted, doubleQuoted, literal, folded }

    package let text: String
    package let style: Style
}

/// A key of a mapping, and its value.
package struct YAMLMember: Equatable, Sendable {
    package let name: String
    package let line: Int
    package let column: Int
    package let value: YAMLNode
}

// MARK: - Typed access

// libyaml has no schema: it returns each scalar as text. These methods are the schema. A place has one type, so that a
// plain `no` or `1.0` is text where text is expected; only null depends on quotation marks.
extension YAMLNode {
    package var scalar: YAMLScalar? {
        guard case .scalar(let scalar) = content else { return nil }
        return scalar
    }

    package var isMapping: Bool {
        guard case .mapping = content else { return false }
        return true
    }

    /// True for `~`, `null` or nothing at all, without quotation marks.
    package var isNull: Bool {
        guard let scalar, scalar.style == .plain else { return false }
        return ["", "~", "null", "Null", "NULL"].contains(scalar.text)
    }

    private func mismatch(_ key: String, _ expected: YAMLType) -> YAMLError {
        YAMLError(.wrongType(key: key, expected: expected), at: self)
    }

    /// Returns the text of a scalar that isn't null. `key` is the value's name in the error.
    package func string(_ key: String) throws(YAMLError) -> String {
        guard let scalar, !isNull else { throw mismatch(key, .string) }
        return scalar.text
    }

    /// Returns a whole number in decimal digits, with or without a sign.
    package func integer(_ key: String) throws(YAMLError) -> Int {
        guard let value = Int(try string(key)) else { throw mismatch(key, .integer) }
        return value
    }

    /// Returns true for `true` and `yes`, false for `false` and `no`, in upper or lower case.
    package func boolean(_ key: String) throws(YAMLError) -> Bool {
        switch try string(key).lowercased() {
        case "true", "yes": return true
        case "false", "no": return false
        default: throw mismatch(key, .boolean)
        }
    }

    package func elements(_ key: String) throws(YAMLError) -> [YAMLNode] {
        guard case .sequence(let elements) = content else { throw mismatch(key, .sequence) }
        return elements
    }

    /// Returns the members in the order of the document.
    package func members(_ key: String) throws(YAMLError) -> [YAMLMember] {
        guard case .mapping(let members) = content else { throw mismatch(key, .mapping) }
        return members
    }
}

/// A mapping whose keys are all known.
package struct YAMLSection {
    package let node: YAMLNode
    private let subject: String
    private let values: [String: YAMLNode]

    /// Throws for another type of node, and for a key that isn't in `keys`. `subject` is the mapping's name in errors.
    package init(_ node: YAMLNode, _ subject: String, keys: Set<String>) throws(YAMLError) {
        self.node = node
        self.subject = subject
        var values: [String: YAMLNode] = [:]
        for member in try node.members(subject) {
            guard keys.contains(member.name) else {
                throw YAMLError(
                    .unknownKey(member.name, subject: subject, known: keys.sorted()), line: member.line,
                    column: member.column, keyLine: member.line)
            }
            values[member.name] = member.value
        }
        self.values = values
    }

    package subscript(key: String) -> YAMLNode? { values[key] }

    package func required(_ key: String) throws(YAMLError) -> YAMLNode {
        guard let value = values[key] else { throw YAMLError(.missingKey(key, subject: subject), at: node) }
        return value
    }
}
