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
    private var lines: [GroupIdentifier: Int?] = [:]
    private var explicit: Set<GroupIdentifier> = []
    private var directories: [FilePath: String] = [:]
    private var files: [FilePath: String] = [:]

    /// - Parameter path: The file; nil for the command line.
    package init(_ path: FilePath?) { self.path = path }

    package mutating func add(
        _ identifier: GroupIdentifier, directory: FilePath, isExplicit: Bool, line: Int?
    ) throws(ConfigurationError) {
        if configuration.group(identifier.rawValue) != nil {
            throw error(line, "the group \(identifier) is configured twice", "put all its stores into one entry")
        }
        if let other = directories.updateValue(identifier.rawValue, forKey: Self.resolved(directory)) {
            throw error(
                line, "\(PrintablePath(directory)) is already the directory of \(other)", "give each group its own")
        }
        lines[identifier] = line
        if isExplicit { explicit.insert(identifier) }
        configuration.groups.append(
            Configuration.Group(identifier: identifier, directory: directory, stores: []))
    }

    /// Adds the store to the group that was added last.
    package mutating func add(_ store: Configuration.Store, line: Int?) throws(ConfigurationError) {
        guard let group = configuration.groups.last else { return }
        let path = group.directory.appending(store.name.database)
        try claim(path, "the store \(group.identifier)/\(PrintablePath(store.name.database))", line)
        configuration.groups[configuration.groups.count - 1].stores.append(store)
    }

    /// Adds the path to the store that was added last.
    package mutating func add(legacy path: FilePath, line: Int?) throws(ConfigurationError) {
        guard let group = configuration.groups.indices.last,
            let store = configuration.groups[group].stores.indices.last
        else { return }
        guard path.lastComponent.flatMap(StoreName.init) != nil else {
            throw error(line, "\(PrintablePath(path)) names no file", "name the store's database file")
        }
        try claim(path, "the legacy store of \(configuration.groups[group].identifier)", line)
        configuration.groups[group].stores[store].legacy.append(path)
    }

    private mutating func claim(_ path: FilePath, _ owner: String, _ line: Int?) throws(ConfigurationError) {
        guard let other = files.updateValue(owner, forKey: Self.resolved(path)) else { return }
        throw error(
            line, "two stores for one file: \(PrintablePath(path)) is \(other) and \(owner)", "remove one of the two")
    }

    /// Returns the path with all symbolic links resolved except in the last component, which may be a link that a
    /// relocation left.
    private static func resolved(_ path: FilePath) -> FilePath {
        guard let name = path.lastComponent else { return path }
        let parent = path.removingLastComponent()
        guard let real = parent.withPlatformString({ realpath($0, nil) }) else { return path }
        defer { free(real) }
        return FilePath(platformString: real).appending(name)
    }

    /// Checks the directories and returns the configuration.
    package func finished() throws(ConfigurationError) -> Configuration {
        guard !configuration.groups.isEmpty else {
            throw error(nil, "no group to serve", "add one to groups:, or name it with --group ID=DIR")
        }
        for group in configuration.groups { try check(group) }
        return configuration
    }

    private func check(_ group: Configuration.Group) throws(ConfigurationError) {
        let line = lines[group.identifier] ?? nil
        let path = PrintablePath(group.directory)
        switch Self.entry(at: group.directory) {
        case .directory:
            let moves = group.stores.contains { !$0.legacy.isEmpty }
            guard group.directory.withPlatformString({ access($0, moves ? R_OK | W_OK | X_OK : R_OK | X_OK) }) == 0
            else {
                throw error(
                    line, "\(path) can't be \(moves ? "written" : "read") by this user (errno \(errno))",
                    "grant it, or run the agent as the directory's owner", kind: .notPermitted)
            }
        case .somethingElse:
            throw error(line, "\(path) is not a directory", "name a directory")
        case .nothing where explicit.contains(group.identifier):
            let parent = group.directory.removingLastComponent()
            switch Self.entry(at: parent) {
            case .directory: break
            case .nothing:
                throw error(
                    line, "\(path) does not exist, and neither does \(PrintablePath(parent))",
                    "mkdir -p \(PrintablePath(group.directory))")
            case .somethingElse:
                throw error(line, "\(PrintablePath(parent)) is not a directory", "name a directory")
            }
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
