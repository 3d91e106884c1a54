import Glibc
import LinuxSystem
import StrictYAML
import SystemPackage

/// Parses the values of a configuration, and reports invalid ones.
extension ConfigurationFile {
    /// Returns what `body` reads. Its error becomes one that names the file and says how to fix it.
    func valid<Result>(_ body: () throws(YAMLError) -> Result) throws(ConfigurationError) -> Result {
        do throws(YAMLError) { return try body() } catch { throw configurationError(error) }
    }

    private func configurationError(_ error: YAMLError) -> ConfigurationError {
        let (message, remedy) =
            switch error.reason {
            case .notUTF8: ("not UTF-8", "save it as UTF-8")
            case .tooLarge(let maximum): ("larger than \(maximum >> 20) MiB", "name a configuration")
            case .alias:
                ("a YAML alias, which a configuration can't contain", "write it out, as config.example.yaml does")
            case .keyIsNotAWord, .tooDeep, .tooManyNodes:
                (error.reason.description, "write it out, as config.example.yaml does")
            case .syntax(let problem): ("not YAML: \(problem)", "fix the line; tabs can't indent")
            case .duplicateKeys(let keys):
                ("duplicate key \(keys.joined(separator: ", ")) in the entry that begins here", "keep one")
            case .wrongType(let key, .sequence): ("\(key) is not a list", "write [A, B], or one '- A' a line")
            case .wrongType(let key, .mapping): ("\(key) is not a mapping", "write KEY: VALUE lines")
            case .wrongType(let key, let expected):
                ("\(key) is not \(expected.rawValue)", "write one value after \(key):")
            case .unknownKey(let key, let subject, let known):
                ("unknown key \(key) in \(subject)", "one of: \(known.joined(separator: ", "))")
            case .missingKey(let key, let subject): ("\(subject) has no \(key)", "add \(key):")
            }
        return invalid(error.line, message, remedy)
    }

    func section(
        _ node: YAMLNode, _ name: String, keys: Set<String>
    ) throws(ConfigurationError) -> YAMLSection {
        try valid { () throws(YAMLError) in try YAMLSection(node, name, keys: keys) }
    }

    func required(_ key: String, in section: YAMLSection) throws(ConfigurationError) -> YAMLNode {
        try valid { () throws(YAMLError) in try section.required(key) }
    }

    func list(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [YAMLNode] {
        try valid { () throws(YAMLError) in try node.elements(key) }
    }

    func string(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> String {
        try valid { () throws(YAMLError) in
            let text = try node.string(key)
            guard !text.isEmpty else { throw YAMLError(.wrongType(key: key, expected: .string), at: node) }
            return text
        }
    }

    func choice<Choice: RawRepresentable & CaseIterable>(
        _ node: YAMLNode, _ key: String
    ) throws(ConfigurationError) -> Choice where Choice.RawValue == String {
        let text = try string(node, key)
        guard let choice = Choice(rawValue: text) else {
            let all = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw invalid(node.line, "\(key) can't be \(text)", "one of: \(all)")
        }
        return choice
    }

    /// Returns a duration of at most a year, in the syntax of `DurationText`.
    ///
    /// - Parameter isAge: True for an age from which on something is deleted: it has a unit.
    func duration(_ node: YAMLNode, isAge: Bool = false) throws(ConfigurationError) -> Duration {
        let text = try string(node, "the duration")
        guard let seconds = DurationText.seconds(text, isUnitRequired: isAge) else {
            throw invalid(
                node.line, "\(text) is not a duration",
                "write \(isAge ? DurationText.formsWithUnit : DurationText.forms)")
        }
        guard seconds <= Self.longestDuration else {
            throw invalid(node.line, "\(text) is longer than a year", "write at most 366d")
        }
        return .milliseconds(Int64((seconds * 1000).rounded()))
    }

    /// 366 days, in seconds.
    private static let longestDuration: Double = 366 * 86_400

    /// Returns an absolute path. `~` is the user's home directory; every other path must begin at the root.
    func absolute(_ node: YAMLNode) throws(ConfigurationError) -> FilePath {
        try absolute(string(node, "the path"), at: node)
    }

    /// Returns the absolute path that a text at the node stands for.
    func absolute(_ text: String, at node: YAMLNode) throws(ConfigurationError) -> FilePath {
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
