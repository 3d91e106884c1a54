import Glibc
import SystemPackage
import Yams

/// Parses the values of a configuration, and reports invalid ones.
extension ConfigurationFile {
    /// A mapping whose keys are all known.
    struct Section {
        let name: String
        let values: [String: Node]
        let missing: (String) -> ConfigurationError

        subscript(key: String) -> Node? { values[key] }

        func required(_ key: String) throws(ConfigurationError) -> Node {
            guard let value = values[key] else { throw missing(key) }
            return value
        }
    }

    func section(
        _ node: Node, _ name: String, keys: Set<String>
    ) throws(ConfigurationError) -> Section {
        guard let mapping = node.mapping else {
            throw invalid(node.line, "\(name) is not a mapping", "write KEY: VALUE lines")
        }
        var values: [String: Node] = [:]
        for (keyNode, value) in mapping {
            let key = keyNode.scalar?.string ?? "?"
            guard keys.contains(key) else {
                throw invalid(
                    keyNode.line, "unknown key \(key) in \(name)", "one of: \(keys.sorted().joined(separator: ", "))")
            }
            values[key] = value
        }
        return Section(name: name, values: values) { key in
            self.invalid(node.line, "\(name) has no \(key)", "add \(key):")
        }
    }

    func list(_ node: Node, _ key: String) throws(ConfigurationError) -> [Node] {
        guard let sequence = node.sequence else {
            throw invalid(node.line, "\(key) is not a list", "write [A, B], or one '- A' a line")
        }
        return Array(sequence)
    }

    func string(_ node: Node, _ key: String) throws(ConfigurationError) -> String {
        guard let scalar = node.scalar, node.null == nil, !scalar.string.isEmpty else {
            throw invalid(node.line, "\(key) is not a string", "write one value after \(key):")
        }
        return scalar.string
    }

    func choice<Choice: RawRepresentable & CaseIterable>(
        _ node: Node, _ key: String
    ) throws(ConfigurationError) -> Choice where Choice.RawValue == String {
        let text = try string(node, key)
        guard let choice = Choice(rawValue: text) else {
            let all = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw invalid(node.line, "\(key) can't be \(text)", "one of: \(all)")
        }
        return choice
    }

    func duration(_ node: Node) throws(ConfigurationError) -> Duration {
        let text = try string(node, "the duration")
        guard let duration = Duration(configuration: text) else {
            throw invalid(node.line, "\(text) is not a duration", "a number followed by ms, s, m, h or d, such as 30s")
        }
        return duration
    }

    /// Returns an absolute path. `~` is the user's home directory; every other path must begin at the root.
    func absolute(_ node: Node) throws(ConfigurationError) -> FilePath {
        let text = try string(node, "the path")
        guard text.utf8.count < PATH_MAX else {
            throw invalid(
                node.line, "the path has \(text.utf8.count) bytes; at most \(PATH_MAX - 1) are allowed", "shorten it")
        }
        if text == "~" || text.hasPrefix("~/") {
            guard let home = environment["HOME"], home.hasPrefix("/") else {
                throw invalid(node.line, "\(text) can't be resolved: HOME is not set", "write the whole path")
            }
            return FilePath(home + text.dropFirst()).lexicallyNormalized()
        }
        guard text.hasPrefix("/"), !text.utf8.contains(0) else {
            throw invalid(node.line, "\(text) is not an absolute path", "begin it with / or ~/")
        }
        return FilePath(text).lexicallyNormalized()
    }
}

extension Node {
    var line: Int? { mark?.line }
}

extension Duration {
    /// Parses a whole number with its unit: `500ms`, `30s`, `1m`, `2h`, `7d`. Returns nil for anything else, and beyond
    /// 366 days.
    init?(configuration text: String) {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        guard let count = Int64(digits), count <= 31_622_400_000 else { return nil }
        let milliseconds: Int64
        switch text.dropFirst(digits.count) {
        case "ms": milliseconds = 1
        case "s": milliseconds = 1000
        case "m": milliseconds = 60_000
        case "h": milliseconds = 3_600_000
        case "d": milliseconds = 86_400_000
        default: return nil
        }
        let total = count.multipliedReportingOverflow(by: milliseconds)
        guard !total.overflow, total.partialValue <= 31_622_400_000 else { return nil }
        self = .milliseconds(total.partialValue)
    }
}
