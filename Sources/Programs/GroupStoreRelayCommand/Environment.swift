import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The environment variables that locate groups and this program's own files.
enum Environment {
    static var all: [String: String] {
        let names = [
            "GROUPSTORE_CONTAINERS", "HOST_XDG_DATA_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
            "FLATPAK_ID", "HOME", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "XDG_STATE_HOME",
            "JOURNAL_STREAM",
        ]
        return Dictionary(
            uniqueKeysWithValues: names.compactMap { name in getenv(name).map { (name, String(cString: $0)) } })
    }

    /// The directory of snapshots that are being sent: in systemd's `CacheDirectory=`, else in the user's cache.
    static var snapshots: FilePath { directory("CACHE_DIRECTORY", "XDG_CACHE_HOME", ".cache") }

    /// The directory of mirrors: in systemd's `StateDirectory=`, else in the user's state directory.
    static var mirrors: FilePath { directory("STATE_DIRECTORY", "XDG_STATE_HOME", ".local/state") }

    private static func directory(_ own: String, _ base: String, _ standard: String) -> FilePath {
        let environment = all
        let path =
            environment[own].map { FilePath(String($0.prefix { $0 != ":" })) }
            ?? environment[base].map { FilePath($0).appending("groupstore") }
            ?? environment["HOME"].map { FilePath($0).appending(standard).appending("groupstore") }
        return (path ?? "/var/tmp/groupstore").appending("relays")
    }

    static var hostName: String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "follower" }
        let bytes = name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return String(
            String(decoding: bytes, as: UTF8.self).map { character in
                character.isASCII && (character.isLetter || character.isNumber || "-_".contains(character))
                    ? character : "-"
            }.prefix(64))
    }
}

/// Places named on the command line.
enum StorePlaces {
    /// Returns the location of an existing store: a path, or `GROUP_ID/NAME` in the group's default directory. A path
    /// that exists takes precedence. Throws `StoreError` and `SystemError`.
    static func existing(_ text: String) throws -> StoreLocation {
        let given = FilePath(text)
        guard let path = resolved(given) ?? groupStore(text).flatMap(resolved) else { throw StoreError.missing(given) }
        guard let last = path.lastComponent, let name = StoreName.existing(last) else {
            throw StoreError.notAFile(path)
        }
        return StoreLocation(directory: try Directory(path.removingLastComponent()), name: name)
    }

    /// Returns the location of a replica, which need not exist, in a group's directory: a path, or a group's
    /// identifier. The directory is created. Throws `StoreError.notAFile` for a name that no store can have, and
    /// `SystemError`.
    static func replica(_ name: String, in group: String) throws -> StoreLocation {
        let given = FilePath(group)
        let standard = GroupIdentifier(group).flatMap { $0.defaultDirectory(environment: Environment.all) }
        let path = FileStatus(following: given) == nil ? standard ?? given : given
        guard let component = FilePath.Component(bytes: Array(name.utf8)), let name = StoreName(component)
        else {
            throw StoreError.notAFile(path.appending(name))
        }
        try GroupContainer.create(path)
        return StoreLocation(directory: try Directory(resolving: path), name: name)
    }

    /// Returns the absolute path of a directory, which need not exist. Throws `SystemError`.
    static func absolute(_ text: String) throws(SystemError) -> FilePath {
        let given = FilePath(text)
        return given.isAbsolute ? given : given.absolute(in: try Directory(resolving: ".").path)
    }

    private static func groupStore(_ text: String) -> FilePath? {
        guard let slash = text.firstIndex(of: "/"), let group = GroupIdentifier(String(text[..<slash])),
            let name = FilePath.Component(String(text[text.index(after: slash)...]))
        else { return nil }
        return group.defaultDirectory(environment: Environment.all)?.appending(name)
    }

    private static func resolved(_ path: FilePath) -> FilePath? {
        guard let found = path.withPlatformString({ realpath($0, nil) }) else { return nil }
        defer { free(found) }
        return FilePath(platformString: found)
    }
}
