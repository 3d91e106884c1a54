import Glibc
import LinuxSystem
import SystemPackage

/// The files that make up the standard configuration, in the order in which they are read: a later one overrides an
/// earlier one, by group and store.
///
/// In each directory, the drop-ins `groups.d/*.yaml` come in the order of their names' bytes, then `config.yaml`: an
/// administrator or user who writes that file has the last word in its directory. The directories follow the XDG base
/// directory specification (https://specifications.freedesktop.org/basedir-spec/latest/), from the least important:
///
/// 1. `groupstore` under each of `$XDG_DATA_DIRS`, or `/usr/local/share:/usr/share`: drop-ins of packages, no
///    `config.yaml`
/// 2. `groupstore` under each of `$XDG_CONFIG_DIRS`, if it is set
/// 3. `/etc/groupstore`. The specification's default is `/etc/xdg`, but desktops set the variable for programs of a
///    session and not for services, which must not get different configurations.
/// 4. `groupstore` under `$XDG_CONFIG_HOME`, or `~/.config`
package struct ConfigurationSources: Sendable {
    package struct File: Sendable, Equatable {
        package let path: FilePath
        package let isDropIn: Bool
        /// True for a file of this user, false for one of a package or of the machine.
        package var isUsers = false
    }

    private struct Place {
        let directory: FilePath
        let hasMainFile: Bool
        let isUsers: Bool
    }

    private let places: [Place]

    package init(environment: [String: String]) {
        /// Returns the directories of a variable, the most important first.
        func list(_ variable: String, default paths: [FilePath]) -> [FilePath] {
            let value = environment[variable] ?? ""
            // The specification: a relative path is invalid and ignored.
            let named = value.split(separator: ":").filter { $0.hasPrefix("/") }.map { FilePath(String($0)) }
            return value.isEmpty ? paths : named
        }
        let home = environment["HOME"].map { FilePath($0).appending(".config") }
        let user = environment["XDG_CONFIG_HOME"].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil } ?? home
        let config = [user].compactMap { $0 } + ["/etc"] + list("XDG_CONFIG_DIRS", default: [])
        let data = list("XDG_DATA_DIRS", default: ["/usr/local/share", "/usr/share"])
        var seen: Set<FilePath> = []
        places =
            (config.map { ($0, true) } + data.map { ($0, false) }).compactMap { base, hasMainFile in
                let directory = base.lexicallyNormalized().appending("groupstore")
                guard seen.insert(directory).inserted else { return nil }
                return Place(directory: directory, hasMainFile: hasMainFile, isUsers: base == user)
            }.reversed()
    }

    /// The directories of drop-ins, which may not exist.
    package var dropInDirectories: [FilePath] { places.map { $0.directory.appending(Self.dropIns) } }

    private static let dropIns: FilePath.Component = "groups.d"
    private static let mainFile: FilePath.Component = "config.yaml"

    /// The last `config.yaml` that exists; nil for none.
    package var mainFile: FilePath? {
        places.reversed().filter(\.hasMainFile).map { $0.directory.appending(Self.mainFile) }.first(where: Self.exists)
    }

    private static func exists(_ path: FilePath) -> Bool { path.withPlatformString { access($0, F_OK) } == 0 }

    /// Returns the files, and the directories that can't be listed.
    package func files() -> (files: [File], problems: [ConfigurationError]) {
        var files: [File] = []
        var problems: [ConfigurationError] = []
        for place in places {
            let directory = place.directory.appending(Self.dropIns)
            do throws(ConfigurationError) {
                files += try Self.names(in: directory).map {
                    File(path: directory.appending($0), isDropIn: true, isUsers: place.isUsers)
                }
            } catch {
                problems.append(error)
            }
            let main = place.directory.appending(Self.mainFile)
            if place.hasMainFile, Self.exists(main) {
                files.append(File(path: main, isDropIn: false, isUsers: place.isUsers))
            }
        }
        return (files, problems)
    }

    /// Returns the names of the drop-ins, in the order of their bytes. Hidden files are none: editors and package
    /// managers write such.
    private static func names(in directory: FilePath) throws(ConfigurationError) -> [FilePath.Component] {
        do throws(SystemError) {
            return try Directory(directory).names().map { ($0, $0.bytes) }
                .filter {
                    $1.first != UInt8(ascii: ".") && $1.count > suffix.count && $1.suffix(suffix.count) == suffix
                }
                .sorted { $0.1.lexicographicallyPrecedes($1.1) }.map(\.0)
        } catch {
            if error.errno == .noSuchFileOrDirectory { return [] }
            let denied = error.errno == .permissionDenied
            throw ConfigurationError(
                denied ? .notPermitted : .invalid, in: directory, line: nil, "can't be listed: \(error)",
                remedy: denied ? "make it readable for this user" : "make it a directory", cause: error)
        }
    }

    private static let suffix = ArraySlice(".yaml".utf8)
}
