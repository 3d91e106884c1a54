import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import Yams

/// The configuration file: strict YAML. An unknown key, a value of the wrong type or a store that two entries claim is
/// an error with its line. Nothing is guessed.
package struct ConfigurationFile {
    package let path: FilePath
    let environment: [String: String]
    private var source: String { PrintablePath(path).description }

    package init(_ path: FilePath, environment: [String: String]) {
        self.path = path
        self.environment = environment
    }

    /// Returns the default file: `groupstore/config.yaml` under `$XDG_CONFIG_HOME` (else `~/.config`), else
    /// `/etc/groupstore/config.yaml`; nil if neither exists.
    package static func standardPath(environment: [String: String]) -> FilePath? {
        let home = environment["HOME"].map { FilePath($0).appending(".config") }
        let user = environment["XDG_CONFIG_HOME"].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil } ?? home
        return [user, "/etc"].compactMap { $0?.appending("groupstore").appending("config.yaml") }
            .first { path in path.withPlatformString { access($0, F_OK) } == 0 }
    }

    package func load() throws(ConfigurationError) -> Configuration { try parse(try text()) }

    private func text() throws(ConfigurationError) -> String {
        do {
            // Opened without waiting for the other end of a FIFO.
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
            throw invalid(mark.line, "not YAML: \(problem)", "fix the line; tabs can't indent")
        } catch YamlError.duplicatedKeysInMapping(let keys, let context) {
            throw invalid(
                context.mark.line,
                "duplicate key \(keys.sorted().joined(separator: ", ")) in the entry that begins here", "keep one")
        } catch {
            throw invalid(nil, "not YAML: \(error)", "see config.example.yaml")
        }
    }

    func invalid(_ line: Int?, _ message: String, _ remedy: String) -> ConfigurationError {
        ConfigurationError(source: source, line: line, message, remedy: remedy)
    }
}

// MARK: - Sections

extension ConfigurationFile {
    private func read(socket: Node, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(
            socket, "socket",
            keys: [
                "path", "allow", "allow-uids", "connections-per-user", "subscriptions-per-connection", "subscriptions",
            ])
        if let path = section["path"] { builder.configuration.socket = try absolute(path) }
        if let node = section["connections-per-user"] {
            guard let count = Int(try string(node, "connections-per-user")), (1...1_000_000).contains(count) else {
                throw invalid(
                    node.line, "connections-per-user is not a valid number of connections", "write 1 to 1000000")
            }
            builder.configuration.connectionsPerUser = count
        }
        if let users = section["allow"] { try read(users: users, &builder) }
        if let node = section["subscriptions-per-connection"] {
            builder.configuration.subscriptions.perConnection = try count(node, "subscriptions-per-connection")
        }
        if let node = section["subscriptions"] {
            builder.configuration.subscriptions.total = try count(node, "subscriptions")
        }
        guard let users = section["allow-uids"] else { return }
        for node in try list(users, "allow-uids") {
            builder.configuration.allowed[try user(node, "allow-uids"), default: []].insert(.subscribe)
        }
    }

    private func read(users: Node, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        for entry in try list(users, "allow") {
            let section = try section(entry, "an entry of allow", keys: ["uid", "may"])
            let uid = try user(section.required("uid"), "uid")
            guard builder.configuration.allowed[uid] == nil else {
                throw invalid(entry.line, "user \(uid) is listed twice", "put all roles of the user into one entry")
            }
            var roles: Set<Role> = section["may"] == nil ? [.subscribe] : []
            if let may = section["may"] {
                for role in try list(may, "may") { roles.insert(try choice(role, "may")) }
                guard !roles.isEmpty else { throw invalid(may.line, "may is empty", "leave the entry out") }
            }
            builder.configuration.allowed[uid] = roles
        }
    }

    private func user(_ node: Node, _ key: String) throws(ConfigurationError) -> uid_t {
        guard let uid = uid_t(try string(node, key)), uid != .max else {
            throw invalid(node.line, "\(key) contains a value that is not a user ID", "write numbers: id -u")
        }
        return uid
    }

    private func count(_ node: Node, _ key: String) throws(ConfigurationError) -> Int {
        guard let count = Int(try string(node, key)), (1...1_000_000).contains(count) else {
            throw invalid(node.line, "\(key) is not a valid number of subscriptions", "write 1 to 1000000")
        }
        return count
    }

    private func read(group: Node, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(group, "a group", keys: ["id", "directory", "stores"])
        let idNode = try section.required("id")
        let id = try string(idNode, "id")
        guard let identifier = GroupIdentifier(id) else {
            throw invalid(
                idNode.line, "\(id) is not a group identifier",
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
}
