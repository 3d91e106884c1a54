import FoundationEssentials
import GroupContainer
import Glibc
import LinuxSystem
import PersistentStore
import StoreRelocation
import SystemPackage
import Yams

/// The configuration file: YAML, strict. An unknown key, a value of the wrong type or a store that two entries claim
/// is an error with its line; nothing is guessed.
package struct ConfigurationFile {
    package let path: FilePath
    private let environment: [String: String]
    private var source: String { PrintablePath(path).description }

    package init(_ path: FilePath, environment: [String: String]) {
        self.path = path
        self.environment = environment
    }

    /// The file that is used when none is named: `groupstore/config.yaml` under `$XDG_CONFIG_HOME` (else
    /// `~/.config`), else `/etc/groupstore/config.yaml`; nil when neither is there.
    package static func standardPath(environment: [String: String]) -> FilePath? {
        let home = environment["HOME"].map { FilePath($0).appending(".config") }
        let user = environment["XDG_CONFIG_HOME"].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil } ?? home
        return [user, "/etc"].compactMap { $0?.appending("groupstore").appending("config.yaml") }
            .first { path in path.withPlatformString { access($0, F_OK) } == 0 }
    }

    package func load() throws(ConfigurationError) -> Configuration { try parse(try text()) }

    private func text() throws(ConfigurationError) -> String {
        do {
            // Without waiting for a FIFO's other end.
            let file = try Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK)
            let bytes = try file.read(count: 1 << 20, at: 0, path: path)
            if let text = String(validating: bytes, as: UTF8.self) { return text }
        } catch {
            let denied = error.errno == .permissionDenied
            throw ConfigurationError(
                denied ? .notPermitted : .invalid, source: source, line: nil, "can't be read: \(error)",
                remedy: denied ? "make it readable for this user" : "name an existing file with --config")
        }
        throw ConfigurationError(source: source, line: nil, "not UTF-8", remedy: "save it as UTF-8")
    }

    package func parse(_ text: String) throws(ConfigurationError) -> Configuration {
        guard let root = try compose(text) else {
            throw ConfigurationError(
                source: source, line: nil, "empty", remedy: "begin with groups:, as config.example.yaml does")
        }
        let section = try section(root, "the file", keys: ["socket", "claim-deadline", "groups"])
        var builder = ConfigurationBuilder(source: source)
        if let socket = section["socket"] { try read(socket: socket, &builder) }
        if let deadline = section["claim-deadline"] { builder.configuration.claimDeadline = try duration(deadline) }
        for group in try list(section.required("groups"), "groups") { try read(group: group, &builder) }
        return try builder.finished()
    }

    private func compose(_ text: String) throws(ConfigurationError) -> Node? {
        if let finding = ConfigurationScan.finding(in: text) {
            throw ConfigurationError(
                source: source, line: finding.line, finding.message, remedy: "write it out, as config.example.yaml does"
            )
        }
        do {
            return try Yams.compose(yaml: text)
        } catch YamlError.scanner(_, let problem, let mark, _), YamlError.parser(_, let problem, let mark, _),
            YamlError.composer(_, let problem, let mark, _)
        {
            throw invalid(mark.line, "not YAML: \(problem)", "mend the line; a tab can't indent")
        } catch YamlError.duplicatedKeysInMapping(let keys, let context) {
            throw invalid(
                context.mark.line,
                "\(keys.sorted().joined(separator: ", ")) is there twice in the entry that begins here", "keep one")
        } catch {
            throw invalid(nil, "not YAML: \(error)", "see config.example.yaml")
        }
    }

    private func invalid(_ line: Int?, _ message: String, _ remedy: String) -> ConfigurationError {
        ConfigurationError(source: source, line: line, message, remedy: remedy)
    }
}

// MARK: - Sections

extension ConfigurationFile {
    private func read(socket: Node, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(socket, "socket", keys: ["path", "allow-uids", "connections-per-user"])
        if let path = section["path"] { builder.configuration.socket = try absolute(path) }
        if let node = section["connections-per-user"] {
            guard let count = Int(try string(node, "connections-per-user")), (1...1_000_000).contains(count) else {
                throw invalid(node.line, "connections-per-user is no number of connections", "write 1 to 1000000")
            }
            builder.configuration.connectionsPerUser = count
        }
        guard let users = section["allow-uids"] else { return }
        for node in try list(users, "allow-uids") {
            guard let uid = uid_t(try string(node, "allow-uids")) else {
                throw invalid(node.line, "allow-uids holds something that is no user's number", "write numbers: id -u")
            }
            builder.configuration.allowedUsers.insert(uid)
        }
    }

    private func read(group: Node, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(group, "a group", keys: ["id", "directory", "stores"])
        let idNode = try section.required("id")
        let id = try string(idNode, "id")
        guard let identifier = GroupIdentifier(id) else {
            throw invalid(
                idNode.line, "\(id) is no group identifier",
                "letters, digits, '.', '-' and '_', such as group.com.example.notes")
        }
        let directory: FilePath
        if let node = section["directory"] {
            directory = try absolute(node)
        } else if let standard = identifier.defaultDirectory(environment: environment) {
            directory = standard
        } else {
            throw invalid(group.line, "\(id) has no directory, and HOME is not set", "add directory:")
        }
        try builder.add(
            identifier, directory: directory, isExplicit: section["directory"] != nil,
            line: section["directory"]?.line ?? group.line)
        guard let stores = section["stores"] else { return }
        for store in try list(stores, "stores") { try read(store: store, &builder) }
    }

    private func read(store node: Node, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(
            node, "a store", keys: ["name", "legacy", "on-conflict", "retire", "settle", "model", "history"],
            later: ["mappings"])
        let nameNode = try section.required("name")
        let text = try string(nameNode, "name")
        guard let name = FilePath.Component(bytes: Array(text.utf8)).flatMap(StoreName.init) else {
            throw invalid(nameNode.line, "\(text) is no file name", "the name only, without a directory")
        }
        var store = Configuration.Store(name: name)
        if let value = section["on-conflict"] { store.onConflict = try choice(value, "on-conflict") }
        if let value = section["retire"] { store.retirement = try choice(value, "retire") }
        if let value = section["settle"] { store.settle = try duration(value) }
        if let value = section["model"] { store.model = try absolute(value) }
        if let value = section["history"] { store.history = try history(value) }
        try builder.add(store, line: nameNode.line)
        guard let legacy = section["legacy"] else { return }
        for path in try list(legacy, "legacy") { try builder.add(legacy: absolute(path), line: path.line) }
    }
}

extension ConfigurationFile {
    /// `true`, `false`, or a mapping with `keep`.
    private func history(_ node: Node) throws(ConfigurationError) -> Configuration.History? {
        if node.scalar != nil {
            switch try string(node, "history") {
            case "true": return Configuration.History()
            case "false": return nil
            default: throw invalid(node.line, "history is neither true, false nor a mapping", "write { keep: 7d }")
            }
        }
        let section = try section(node, "history", keys: ["keep"])
        guard let keep = section["keep"] else { return Configuration.History() }
        return Configuration.History(keep: try duration(keep))
    }
}

// MARK: - Values

extension ConfigurationFile {
    /// A mapping whose keys were all known.
    private struct Section {
        let name: String
        let values: [String: Node]
        let missing: (String) -> ConfigurationError

        subscript(key: String) -> Node? { values[key] }

        func required(_ key: String) throws(ConfigurationError) -> Node {
            guard let value = values[key] else { throw missing(key) }
            return value
        }
    }

    private func section(
        _ node: Node, _ name: String, keys: Set<String>, later: Set<String> = []
    ) throws(ConfigurationError) -> Section {
        guard let mapping = node.mapping else {
            throw invalid(node.line, "\(name) is not a mapping", "write KEY: VALUE lines")
        }
        var values: [String: Node] = [:]
        for (keyNode, value) in mapping {
            let key = keyNode.scalar?.string ?? "?"
            if later.contains(key) {
                throw invalid(keyNode.line, "\(key) is not supported by this version", "remove it")
            }
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

    private func list(_ node: Node, _ key: String) throws(ConfigurationError) -> [Node] {
        guard let sequence = node.sequence else {
            throw invalid(node.line, "\(key) is not a list", "write [A, B], or one '- A' a line")
        }
        return Array(sequence)
    }

    private func string(_ node: Node, _ key: String) throws(ConfigurationError) -> String {
        guard let scalar = node.scalar, node.null == nil, !scalar.string.isEmpty else {
            throw invalid(node.line, "\(key) is not a text", "write one value behind \(key):")
        }
        return scalar.string
    }

    private func choice<Choice: RawRepresentable & CaseIterable>(
        _ node: Node, _ key: String
    ) throws(ConfigurationError) -> Choice where Choice.RawValue == String {
        let text = try string(node, key)
        guard let choice = Choice(rawValue: text) else {
            let all = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw invalid(node.line, "\(key) can't be \(text)", "one of: \(all)")
        }
        return choice
    }

    private func duration(_ node: Node) throws(ConfigurationError) -> Duration {
        let text = try string(node, "the duration")
        guard let duration = Duration(configuration: text) else {
            throw invalid(node.line, "\(text) is no duration", "a number with ms, s, m, h or d behind it, such as 30s")
        }
        return duration
    }

    /// `~` is the user's home; everything else begins at the root.
    private func absolute(_ node: Node) throws(ConfigurationError) -> FilePath {
        let text = try string(node, "the path")
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
    fileprivate var line: Int? { mark?.line }
}

extension Duration {
    /// A whole number with its unit: `500ms`, `30s`, `1m`, `2h`, `7d`. Nil for anything else, and beyond 366 days.
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
