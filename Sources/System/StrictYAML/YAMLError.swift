/// The reason a YAML document, or a value in it, can't be read, with its place. The readers of the two file forms turn
/// it into their own error, which names the file.
package struct YAMLError: Error, Equatable, Sendable {
    package enum Reason: Equatable, Sendable {
        case tooLarge(maximumBytes: Int)
        case notUTF8
        /// The description is libyaml's.
        case syntax(String)
        case tooDeep(maximum: Int)
        case tooManyNodes(maximum: Int)
        /// The document contains an alias, and the reader refuses them.
        case alias
        /// A key is a list or a mapping.
        case keyIsNotAWord
        /// One mapping contains each of these keys more than once.
        case duplicateKeys([String])
        case wrongType(key: String, expected: YAMLType)
        case unknownKey(String, subject: String, known: [String])
        case missingKey(String, subject: String)
    }

    package let reason: Reason
    /// The line, counted from 1; nil for the whole file.
    package let line: Int?
    /// The column, counted from 1 in Unicode scalars.
    package let column: Int?
    /// The line of the key whose value this is about.
    package let keyLine: Int?

    package init(_ reason: Reason, line: Int? = nil, column: Int? = nil, keyLine: Int? = nil) {
        self.reason = reason
        self.line = line
        self.column = column
        self.keyLine = keyLine
    }

    package init(_ reason: Reason, at node: YAMLNode) {
        self.init(reason, line: node.line, column: node.column, keyLine: node.keyLine)
    }
}

/// The type of a value that a reader expects.
package enum YAMLType: String, Sendable {
    case string = "a string"
    case integer = "a whole number"
    case boolean = "true or false"
    case sequence = "a list"
    case mapping = "a mapping"
}

extension YAMLError: CustomStringConvertible {
    package var description: String { (line.map { "line \($0): " } ?? "") + reason.description }
}

extension YAMLError.Reason: CustomStringConvertible {
    package var description: String {
        switch self {
        case .tooLarge(let maximum): "larger than \(maximum) bytes"
        case .notUTF8: "not UTF-8"
        case .syntax(let problem): problem
        case .tooDeep(let maximum): "nested more than \(maximum) deep"
        case .tooManyNodes(let maximum): "more than \(maximum) values"
        case .alias: "a YAML alias"
        case .keyIsNotAWord: "a key that is not a plain word"
        case .duplicateKeys(let keys): "duplicate key \(keys.joined(separator: ", "))"
        case .wrongType(let key, let expected): "\(key) is not \(expected.rawValue)"
        case .unknownKey(let key, let subject, let known):
            "unknown key \(key) in \(subject), which has \(known.joined(separator: ", "))"
        case .missingKey(let key, let subject): "\(subject) has no \(key)"
        }
    }
}
