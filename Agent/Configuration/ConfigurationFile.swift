import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import StrictYAML
import SystemPackage

/// A configuration file: strict YAML. An unknown key, a value of the wrong type or a store that two entries claim is
/// an error with its line. Nothing is guessed.
package struct ConfigurationFile {
    package let path: FilePath
    let environment: [String: String]
    /// True for a file of `groups.d`, which describes groups and nothing else: an app's package can't admit users.
    private let isDropIn: Bool

    package init(_ path: FilePath, environment: [String: String], isDropIn: Bool = false) {
        self.path = path
        self.environment = environment
        self.isDropIn = isDropIn
    }

    /// Returns the last `config.yaml` of the standard configuration (`ConfigurationSources`); nil if there is none.
    package static func standardPath(environment: [String: String]) -> FilePath? {
        ConfigurationSources(environment: environment).mainFile
    }

    private static let maximumSize = 1 << 20

    /// Returns the configuration that consists of this file alone.
    package func load() throws(ConfigurationError) -> Configuration {
        try builder(of: try root(of: try bytes()), needsGroups: true).finished()
    }

    /// Returns the file's part of the standard configuration. Other files may have the groups.
    func fragment() throws(ConfigurationError) -> ConfigurationFragment {
        let root = try root(of: try bytes())
        guard root != nil || !isDropIn else {
            return ConfigurationFragment(path: path, settings: Configuration(), groups: [], isEmpty: true)
        }
        return try builder(of: root, needsGroups: isDropIn).fragment()
    }

    private func bytes() throws(ConfigurationError) -> [UInt8] {
        do throws(SystemError) {
            // Opened without waiting for the other end of a FIFO.
            let file = try Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK)
            // One byte more than is allowed shows that the file is too large.
            return try file.read(count: Self.maximumSize + 1, at: 0, path: path)
        } catch {
            let denied = error.errno == .permissionDenied
            throw ConfigurationError(
                denied ? .notPermitted : .invalid, in: path, line: nil, "can't be read: \(error)",
                remedy: denied
                    ? "make it readable for this user"
                    : isDropIn ? "make it a file, or remove it" : "name an existing file with --config", cause: error)
        }
    }

    package func parse(_ text: String) throws(ConfigurationError) -> Configuration {
        try builder(of: try root(of: Array(text.utf8)), needsGroups: true).finished()
    }

    private func root(of bytes: [UInt8]) throws(ConfigurationError) -> YAMLNode? {
        // The entries of a store are lists and mappings six deep.
        let reader = YAMLReader(aliases: .refused, maximumBytes: Self.maximumSize, maximumDepth: 8)
        return try valid { () throws(YAMLError) in try reader.root(of: bytes) }
    }

    private func builder(of root: YAMLNode?, needsGroups: Bool) throws(ConfigurationError) -> ConfigurationBuilder {
        guard let root else {
            throw ConfigurationError(
                in: path, line: nil, "empty", remedy: "begin with groups:, as config.example.yaml does")
        }
        let section =
            try isDropIn
            ? section(root, "a drop-in", keys: ["groups"])
            : section(root, "the file", keys: ["socket", "claim-deadline", "rescue", "groups"])
        var builder = ConfigurationBuilder(path)
        if let socket = section["socket"] { try read(socket: socket, &builder) }
        if let deadline = section["claim-deadline"] { builder.configuration.claimDeadline = try duration(deadline) }
        if let rescue = section["rescue"] { builder.configuration.rescue = try choice(rescue, "rescue") }
        guard let groups = section["groups"] else {
            if needsGroups { _ = try required("groups", in: section) }
            return builder
        }
        for group in try list(groups, "groups") { try read(group: group, &builder) }
        return builder
    }

    func invalid(_ line: Int?, _ message: String, _ remedy: String) -> ConfigurationError {
        ConfigurationError(in: path, line: line, message, remedy: remedy)
    }
}

// MARK: - Sections

extension ConfigurationFile {
    private func read(socket: YAMLNode, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
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

    private func read(users: YAMLNode, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        for entry in try list(users, "allow") {
            let section = try section(entry, "an entry of allow", keys: ["uid", "may"])
            let uid = try user(required("uid", in: section), "uid")
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

    private func user(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> uid_t {
        guard let uid = uid_t(try string(node, key)), uid != .max else {
            throw invalid(node.line, "\(key) contains a value that is not a user ID", "write numbers: id -u")
        }
        return uid
    }

    private func count(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> Int {
        guard let count = Int(try string(node, key)), (1...1_000_000).contains(count) else {
            throw invalid(node.line, "\(key) is not a valid number of subscriptions", "write 1 to 1000000")
        }
        return count
    }

    private func read(group: YAMLNode, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(group, "a group", keys: ["id", "directory", "stores", "apps"])
        let idNode = try required("id", in: section)
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
        if let stores = section["stores"] {
            for store in try list(stores, "stores") { try read(store: store, &builder) }
        }
        guard let apps = section["apps"] else { return }
        for app in try list(apps, "apps") { try read(app: app, of: directory, &builder) }
    }
}
