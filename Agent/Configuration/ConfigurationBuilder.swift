import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Assembles a configuration, and rejects contradictions: a file that two entries claim, a directory of two groups, a
/// path where no directory can be.
package struct ConfigurationBuilder {
    package var configuration = Configuration()
    private let path: FilePath?
    private var entries: [ConfigurationFragment.Group] = []
    private var claims = ConfigurationClaims()

    /// - Parameter path: The file; nil for the command line.
    package init(_ path: FilePath?) { self.path = path }

    package mutating func add(
        _ identifier: GroupIdentifier, directory: FilePath, isExplicit: Bool, line: Int?
    ) throws(ConfigurationError) {
        if configuration.group(identifier.rawValue) != nil {
            throw error(line, "the group \(identifier) is configured twice", "put all its stores into one entry")
        }
        try claims.claim(directory: directory, of: identifier, at: path, line)
        entries.append(
            ConfigurationFragment.Group(
                identifier: identifier, directory: directory, namesDirectory: isExplicit, line: line))
        configuration.groups.append(
            Configuration.Group(identifier: identifier, directory: directory, stores: []))
    }

    /// Adds the store to the group that was added last.
    package mutating func add(_ store: Configuration.Store, line: Int?) throws(ConfigurationError) {
        guard let group = configuration.groups.last else { return }
        let entry = ConfigurationFragment.Store(store: store, line: line)
        try claims.claim(entry, of: group, at: path)
        entries[entries.count - 1].stores.append(entry)
        configuration.groups[configuration.groups.count - 1].stores.append(store)
    }

    /// Adds the path to the store that was added last.
    package mutating func add(legacy path: FilePath, line: Int?) throws(ConfigurationError) {
        guard let group = configuration.groups.indices.last,
            let store = configuration.groups[group].stores.indices.last
        else { return }
        guard path.lastComponent.flatMap(StoreName.existing) != nil else {
            throw error(line, "\(PrintablePath(path)) names no file", "name the store's database file")
        }
        let owner = "the legacy store of \(configuration.groups[group].identifier)"
        try claims.claim(file: path, owner, at: self.path, line)
        configuration.groups[group].stores[store].legacy.append(path)
        entries[group].stores[store].store.legacy.append(path)
        entries[group].stores[store].legacyLines.append(line)
    }

    /// Adds the app to the group that was added last.
    package mutating func add(_ app: Configuration.App, line: Int?) throws(ConfigurationError) {
        guard let group = configuration.groups.last else { return }
        let entry = ConfigurationFragment.App(app: app, line: line)
        try claims.claim(entry, of: group, at: path)
        entries[entries.count - 1].apps.append(entry)
        configuration.groups[configuration.groups.count - 1].apps.append(app)
    }

    /// Checks the directories and returns the configuration.
    package func finished() throws(ConfigurationError) -> Configuration {
        guard !configuration.groups.isEmpty else {
            throw error(nil, "no group to serve", "add one to groups:, or name it with --group ID=DIR")
        }
        for (group, entry) in zip(configuration.groups, entries) { try check(group, line: entry.line) }
        return configuration
    }

    /// Returns the content without checking the directories.
    func fragment() -> ConfigurationFragment {
        var settings = configuration
        settings.groups = []
        return ConfigurationFragment(path: path, settings: settings, groups: entries)
    }

    /// Checks a group's directory: a path where no directory can be, or one that this user can't use, is an error. One
    /// that doesn't exist yet is none, even if its parent is missing: a disk may be mounted there later.
    func check(_ group: Configuration.Group, line: Int?) throws(ConfigurationError) {
        let path = PrintablePath(group.directory)
        switch Self.entry(at: group.directory) {
        case .directory:
            let moves = !group.apps.isEmpty || group.stores.contains { !$0.legacy.isEmpty }
            guard group.directory.withPlatformString({ access($0, moves ? R_OK | W_OK | X_OK : R_OK | X_OK) }) == 0
            else {
                throw error(
                    line, "\(path) can't be \(moves ? "written" : "read") by this user (errno \(errno))",
                    "grant it, or run the agent as the directory's owner", kind: .notPermitted)
            }
        case .somethingElse:
            throw error(line, "\(path) is not a directory", "name a directory")
        case .nothing: break
        }
    }

    private enum Entry { case directory, somethingElse, nothing }

    private static func entry(at path: FilePath) -> Entry {
        var found = stat()
        guard path.withPlatformString({ stat($0, &found) }) == 0 else {
            return errno == ENOTDIR ? .somethingElse : .nothing
        }
        return FileStatus(found).kind == .directory ? .directory : .somethingElse
    }

    private func error(
        _ line: Int?, _ message: String, _ remedy: String, kind: ConfigurationError.Kind = .invalid
    ) -> ConfigurationError {
        ConfigurationError(kind, in: path, line: line, message, remedy: remedy)
    }
}
