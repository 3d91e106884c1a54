import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The directories and files that a configuration's entries have taken. Two groups can't share a directory, two stores
/// no file, and what is in an app's directory moves with that alone.
struct ConfigurationClaims {
    private struct Claim {
        let owner: String
        /// What is claimed, as written.
        let given: FilePath
        let path: FilePath?
    }

    private var directories: [FilePath: Claim] = [:]
    private var files: [FilePath: Claim] = [:]
    /// The directories of apps.
    private var apps: [Claim] = []

    mutating func claim(
        directory: FilePath, of group: GroupIdentifier, at path: FilePath?, _ line: Int?
    ) throws(ConfigurationError) {
        let claim = Claim(owner: group.rawValue, given: directory, path: path)
        try check(directory, "the directory of \(group)", at: path, line)
        guard let other = directories.updateValue(claim, forKey: Self.resolved(directory)) else { return }
        throw ConfigurationError(
            in: path, line: line,
            "\(PrintablePath(directory)) is already the directory of \(other.owner)\(Self.place(of: other, not: path))",
            remedy: "give each group its own")
    }

    mutating func claim(
        _ entry: ConfigurationFragment.Store, of group: Configuration.Group, at path: FilePath?
    ) throws(ConfigurationError) {
        let name = entry.store.name.database
        try claim(
            file: group.directory.appending(name), "the store \(group.identifier)/\(PrintablePath(name))", at: path,
            entry.line)
        for (legacy, line) in zip(entry.store.legacy, entry.legacyLines) {
            try claim(file: legacy, "the legacy store of \(group.identifier)", at: path, line)
        }
    }

    mutating func claim(
        file: FilePath, _ owner: String, at path: FilePath?, _ line: Int?
    ) throws(ConfigurationError) {
        try check(file, owner, at: path, line)
        let claim = Claim(owner: owner, given: file, path: path)
        guard let other = files.updateValue(claim, forKey: Self.resolved(file)) else { return }
        throw ConfigurationError(
            in: path, line: line,
            "two stores for one file: \(PrintablePath(file)) is \(other.owner)\(Self.place(of: other, not: path)) "
                + "and \(owner)",
            remedy: "remove one of the two")
    }

    /// Claims an app's directory, and its new place.
    mutating func claim(
        _ entry: ConfigurationFragment.App, of group: Configuration.Group, at path: FilePath?
    ) throws(ConfigurationError) {
        let (source, line) = (entry.app.source, entry.line)
        let destination = group.directory.appending(entry.app.name)
        if let problem = Self.problem(from: source, to: destination) {
            throw ConfigurationError(in: path, line: line, problem, remedy: "name another directory, or destination")
        }
        let owner = "the app's directory \(PrintablePath(source))"
        for claim in apps where Self.lies(source, in: claim.given) || Self.lies(claim.given, in: source) {
            throw Self.overlap(owner, claim.owner, of: claim, at: path, line)
        }
        for claim in directories.values where Self.lies(claim.given, in: source) {
            throw Self.overlap("the directory of \(claim.owner)", owner, of: claim, at: path, line)
        }
        for claim in files.values where Self.lies(claim.given, in: source) {
            throw Self.overlap(claim.owner, owner, of: claim, at: path, line)
        }
        try claim(file: destination, "the new place of \(owner)", at: path, line)
        apps.append(Claim(owner: owner, given: source, path: path))
    }

    /// Returns why a directory can't be moved to a place; nil if the two paths allow it.
    private static func problem(from source: FilePath, to destination: FilePath) -> String? {
        let (from, to) = (PrintablePath(source), PrintablePath(destination))
        if source == destination { return "\(from) is its own destination" }
        if lies(destination, in: source) { return "the destination \(to) is inside \(from)" }
        if lies(source, in: destination) { return "\(from) is inside its destination \(to)" }
        return nil
    }

    /// Throws if a path that is claimed lies in an app's directory.
    private func check(
        _ claimed: FilePath, _ owner: String, at path: FilePath?, _ line: Int?
    ) throws(ConfigurationError) {
        guard let claim = apps.first(where: { Self.lies(claimed, in: $0.given) }) else { return }
        throw Self.overlap("\(owner), \(PrintablePath(claimed)),", claim.owner, of: claim, at: path, line)
    }

    private static func overlap(
        _ inner: String, _ outer: String, of claim: Claim, at path: FilePath?, _ line: Int?
    ) -> ConfigurationError {
        ConfigurationError(
            in: path, line: line,
            "\(inner) and \(outer)\(place(of: claim, not: path)) are one directory, or one is in the other",
            remedy: "remove one of the two: a directory moves with all that is in it")
    }

    /// True if a path is the directory or lies in it, as written or with links resolved. After the move a link is at
    /// the directory's old path.
    private static func lies(_ path: FilePath, in directory: FilePath) -> Bool {
        path.starts(with: directory) || resolved(path).starts(with: resolved(directory))
    }

    /// Returns the other claim's file, if it is another one.
    private static func place(of claim: Claim, not path: FilePath?) -> String {
        guard let other = claim.path, other != path else { return "" }
        return " (\(PrintablePath(other)))"
    }

    /// Returns the path with all symbolic links resolved except in the last component, which may be a link that a
    /// relocation left.
    private static func resolved(_ path: FilePath) -> FilePath {
        guard let name = path.lastComponent else { return path }
        return path.removingLastComponent().resolvingLinks.appending(name)
    }
}
