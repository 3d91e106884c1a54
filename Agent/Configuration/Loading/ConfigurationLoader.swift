import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// Loads the configuration, again and again.
///
/// - One named file stands alone: it is valid, or loading fails.
/// - The standard configuration merges many files (`ConfigurationSources`). Its last `config.yaml` must be valid. Any
///   other file that isn't is left out and reported, so that one app's broken drop-in doesn't take down the others'
///   service; if it was valid when it was loaded before, its content from then stays in effect.
/// - Without any `config.yaml`, the directories of the standard place for group containers are served too.
package final class ConfigurationLoader: Sendable {
    private let file: FilePath?
    private let environment: [String: String]
    /// The content of files as it was last valid.
    private let known = Mutex<[FilePath: ConfigurationFragment]>([:])

    /// - Parameter file: The only file; nil for the standard configuration.
    package init(file: FilePath? = nil, environment: [String: String]) {
        self.file = file
        self.environment = environment
    }

    package func load() throws(ConfigurationError) -> Configuration {
        guard let file else { return try loadStandard() }
        var configuration = try ConfigurationFile(file, environment: environment).load()
        configuration.files = [file]
        return configuration
    }

    private func loadStandard() throws(ConfigurationError) -> Configuration {
        let sources = ConfigurationSources(environment: environment)
        let main = sources.mainFile
        var (files, problems) = sources.files()
        // The first entry of a path would be overridden by itself.
        var fragments: [(file: ConfigurationSources.File, content: ConfigurationFragment)] = []
        for file in files {
            do throws(ConfigurationError) {
                let found = ConfigurationFile(file.path, environment: environment, isDropIn: file.isDropIn)
                fragments.append((file, try found.fragment()))
            } catch {
                if file.path == main { throw error }
                let last = known.withLock { $0[file.path] }
                if let last { fragments.append((file, last)) }
                problems.append(last == nil ? error : error.keepingLastContent)
            }
        }
        fragments = Self.withoutMasked(fragments)
        let merge = try ConfigurationMerge(
            fragments.map { .init(fragment: $0.content, isMain: $0.file.path == main, isUsers: $0.file.isUsers) })
        var configuration = merge.configuration
        configuration.files = fragments.filter { !$0.content.isEmpty }.map(\.file.path)
        configuration.problems = problems + merge.problems
        configuration.notes = merge.notes
        // The machine's file may have groups of the system's agent alone.
        if main == nil || merge.leavesGroupsToSystem && configuration.groups.isEmpty {
            configuration.containers = GroupIdentifier.defaultDirectories(environment: environment)
            configuration.discoverGroups()
        }
        if configuration.groups.isEmpty, configuration.containers == nil {
            throw configuration.problems.first
                ?? ConfigurationError(
                    in: main, line: nil, "no group to serve",
                    remedy: main == nil
                        ? "set HOME, or name a group: --group ID=DIR"
                        : "add one to groups:, or name it with --group ID=DIR")
        }
        known.withLock { known in
            known = Dictionary(fragments.map { ($0.file.path, $0.content) }, uniquingKeysWith: { $1 })
        }
        return configuration
    }

    /// Returns the files without the drop-ins that a later empty one of the same name switches off.
    private static func withoutMasked(
        _ fragments: [(file: ConfigurationSources.File, content: ConfigurationFragment)]
    ) -> [(file: ConfigurationSources.File, content: ConfigurationFragment)] {
        var masked: Set<FilePath.Component> = []
        return fragments.reversed().filter { file, content in
            guard file.isDropIn, let name = file.path.lastComponent else { return true }
            if content.isEmpty { masked.insert(name) }
            return !masked.contains(name) || content.isEmpty
        }.reversed()
    }
}

extension ConfigurationError {
    /// The error of a file whose earlier content stays in effect.
    fileprivate var keepingLastContent: ConfigurationError {
        ConfigurationError(
            kind, in: path, line: line, message + "; what it said before stays in effect", remedy: remedy)
    }
}
