import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The directories and files that a configuration's entries have taken. Two groups can't share a directory, and two
/// stores no file.
struct ConfigurationClaims {
    private struct Claim {
        let owner: String
        let path: FilePath?
    }

    private var directories: [FilePath: Claim] = [:]
    private var files: [FilePath: Claim] = [:]

    mutating func claim(
        directory: FilePath, of group: GroupIdentifier, at path: FilePath?, _ line: Int?
    ) throws(ConfigurationError) {
        let claim = Claim(owner: group.rawValue, path: path)
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
        guard let other = files.updateValue(Claim(owner: owner, path: path), forKey: Self.resolved(file)) else {
            return
        }
        throw ConfigurationError(
            in: path, line: line,
            "two stores for one file: \(PrintablePath(file)) is \(other.owner)\(Self.place(of: other, not: path)) "
                + "and \(owner)",
            remedy: "remove one of the two")
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
        let parent = path.removingLastComponent()
        guard let real = parent.withPlatformString({ realpath($0, nil) }) else { return path }
        defer { free(real) }
        return FilePath(platformString: real).appending(name)
    }
}
