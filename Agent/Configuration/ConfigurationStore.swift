import Glibc
import GroupContainers
import SQLiteFormat
import StoreMigration
import StoreRelocation
import StrictYAML
import SystemPackage

/// Parses the entry of one store.
extension ConfigurationFile {
    private static let storeKeys: Set<String> = [
        "name", "legacy", "on-conflict", "retire", "settle", "journal-mode", "history", "model", "mappings",
        "on-incompatible", "default-store", "assume-closed", "models", "configuration", "validate", "rows",
    ]

    func read(store node: YAMLNode, _ builder: inout ConfigurationBuilder) throws(ConfigurationError) {
        let section = try section(node, "a store", keys: Self.storeKeys)
        let nameNode = try required("name", in: section)
        let text = try string(nameNode, "name")
        // The length first: swift-system's debug build checks a component anew for each of its bytes.
        guard text.utf8.count <= NAME_MAX,
            let name = FilePath.Component(bytes: Array(text.utf8)).flatMap(StoreName.init)
        else {
            throw invalid(
                nameNode.line, "\(text) can't be a store's name",
                "the name only, without a directory, and not -wal, -shm or -journal at its end")
        }
        var store = Configuration.Store(name: name)
        if let value = section["on-conflict"] { store.onConflict = try conflictPolicy(value) }
        if let value = section["retire"] { store.retirement = try choice(value, "retire") }
        if let value = section["settle"] { store.settle = try duration(value) }
        if let value = section["journal-mode"] { store.journalMode = try journalMode(value) }
        if let value = section["assume-closed"] { store.assumeClosed = try boolean(value, "assume-closed") }
        store.migration = try migration(section)
        if let value = section["history"] { store.history = try history(value) }
        if let value = section["rows"] { store.rows = try boolean(value, "rows") }
        try builder.add(store, line: nameNode.line)
        guard let legacy = section["legacy"] else { return }
        for path in try list(legacy, "legacy") { try builder.add(legacy: legacyPath(path), line: path.line) }
    }

    /// Parses the policy for two stores with rows. A merge is done once, by a person who has looked at its plan.
    private func conflictPolicy(_ node: YAMLNode) throws(ConfigurationError) -> RelocationRequest.ConflictPolicy {
        if try string(node, "on-conflict") == RelocationRequest.ConflictPolicy.merge.rawValue {
            throw invalid(
                node.line, "on-conflict can't be merge: a merge is never done unattended",
                "one of: refuse, keep-group, keep-legacy; look at groupstore relocate --on-conflict merge --dry-run, then run it"
            )
        }
        return try choice(node, "on-conflict")
    }

    /// Parses an absolute path, or the shorthand of one (`ContainerPath`).
    func legacyPath(_ node: YAMLNode) throws(ConfigurationError) -> FilePath {
        let text = try string(node, "the path")
        do throws(ContainerPath.Failure) {
            if let short = try ContainerPath(text, home: environment["HOME"]) { return short.path }
        } catch {
            throw invalid(node.line, error.message, error.remedy)
        }
        return try absolute(node)
    }

    /// Parses the keys about migration. Without `model` they are errors.
    private func migration(_ section: YAMLSection) throws(ConfigurationError) -> MigrationRequest? {
        var models: [FilePath] = []
        if let model = section["model"] { models.append(try absolute(model)) }
        if let list = section["models"] {
            guard models.isEmpty else {
                throw invalid(list.line, "both model and models", "list all of them in models:")
            }
            for path in try self.list(list, "models") { models.append(try absolute(path)) }
        }
        guard let model = models.first else {
            for key in ["mappings", "on-incompatible", "default-store", "configuration", "validate"] {
                guard let node = section[key] else { continue }
                throw invalid(node.line, "\(key) without a model", "add model:, or remove it")
            }
            return nil
        }
        var migration = MigrationRequest(model)
        migration.mergedModels = Array(models.dropFirst())
        if let value = section["configuration"] { migration.configuration = try string(value, "configuration") }
        if let mappings = section["mappings"] {
            for path in try list(mappings, "mappings") { migration.mappings.append(try absolute(path)) }
        }
        if let value = section["on-incompatible"] { migration.onIncompatible = try choice(value, "on-incompatible") }
        if let value = section["validate"] { migration.options.validation = try choice(value, "validate") }
        if let value = section["default-store"] {
            guard migration.onIncompatible == .setAside else {
                throw invalid(value.line, "default-store without on-incompatible: set-aside", "add that, or remove it")
            }
            migration.defaultStore = try absolute(value)
        }
        return migration
    }

    func boolean(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> Bool {
        switch try string(node, key) {
        case "true": return true
        case "false": return false
        case let text: throw invalid(node.line, "\(key) can't be \(text)", "one of: true, false")
        }
    }

    private func journalMode(_ node: YAMLNode) throws(ConfigurationError) -> DatabaseHeader.JournalMode {
        let text = try string(node, "journal-mode")
        guard let mode = DatabaseHeader.JournalMode(word: text) else {
            throw invalid(node.line, "journal-mode can't be \(text)", "one of: wal, delete")
        }
        return mode
    }

    /// Parses `true`, `false`, or a mapping with `keep`.
    private func history(_ node: YAMLNode) throws(ConfigurationError) -> Configuration.History? {
        if node.scalar != nil {
            switch try string(node, "history") {
            case "true": return Configuration.History()
            case "false": return nil
            default: throw invalid(node.line, "history is neither true, false nor a mapping", "write { keep: 7d }")
            }
        }
        let section = try section(node, "history", keys: ["keep"])
        guard let keep = section["keep"] else { return Configuration.History() }
        return Configuration.History(keep: try duration(keep, isAge: true))
    }
}
