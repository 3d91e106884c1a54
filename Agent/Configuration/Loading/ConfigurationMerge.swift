import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// Merges the standard configuration's files.
///
/// - The entry of a store or an app replaces an earlier one of the same group and name as a whole. A `directory:`
///   replaces an earlier one of the group.
/// - Everything but the groups comes from the last `config.yaml` alone: who may connect to a user's agent is not for
///   another file to say.
/// - A file that contradicts another, such as one that claims another's legacy path, is left out. The last
///   `config.yaml` never is: its errors are the whole configuration's. Of two others it is the earlier one.
struct ConfigurationMerge {
    /// A file's content and place in the order.
    struct Source {
        let fragment: ConfigurationFragment
        /// True for the last `config.yaml`.
        let isMain: Bool
        /// True for a file of this user.
        let isUsers: Bool
    }

    private(set) var configuration: Configuration
    /// The errors in files and groups that are left out.
    private(set) var problems: [ConfigurationError] = []
    /// The groups of others' files that this user may not use, or that are another user's, which is no error.
    private(set) var notes: [ConfigurationError] = []
    /// True if the system's agent is to serve some of the groups.
    private(set) var leavesGroupsToSystem = false

    /// - Parameter sources: In the order in which they are read.
    init(_ sources: [Source]) throws(ConfigurationError) {
        configuration = sources.last(where: \.isMain)?.fragment.settings ?? Configuration()
        var accepted = sources
        var plan = Plan(accepted)
        // Each round leaves at least one file out. What it contradicted may then be right, and another file wrong.
        while let rejected = try plan.contradictions().nonEmpty {
            problems += rejected.map(\.value)
            accepted = accepted.filter { source in rejected[source.fragment.path] == nil }
            plan = Plan(accepted)
        }
        for group in plan.groups.sorted(by: { $0.value.order < $1.value.order }).map(\.value) {
            if let note = group.belongingToAnother {
                notes.append(note)
                leavesGroupsToSystem = true
                continue
            }
            do throws(ConfigurationError) {
                try group.check()
                configuration.groups.append(group.group)
            } catch {
                if group.isOfMain { throw error }
                if error.kind == .notPermitted { notes.append(error) } else { problems.append(error) }
            }
        }
    }

    /// The groups of some files.
    private struct Plan {
        struct Group {
            var group: Configuration.Group
            /// The file and line that give the directory.
            var path: FilePath?
            var line: Int?
            var isOfMain: Bool
            /// True if a file of this user names the group.
            var isOfUser: Bool
            /// The place of its first mention.
            var order: Int

            /// Says that the system's agent serves the group: its directory is another user's, and no file of this user
            /// asks for it. Two agents of one group would each relocate its stores. Nil for any other group.
            var belongingToAnother: ConfigurationError? {
                guard !isOfUser, geteuid() != 0, let owner = FileStatus(following: group.directory)?.owner,
                    owner != geteuid()
                else { return nil }
                return ConfigurationError(
                    .notPermitted, in: path, line: line,
                    "the group \(group.identifier) is left to the system's agent: "
                        + "\(PrintablePath(group.directory)) belongs to user \(owner)",
                    remedy: "to serve it, add it to groups: of your own config.yaml")
            }

            func check() throws(ConfigurationError) {
                try ConfigurationBuilder(path).check(group, line: line)
            }
        }

        private struct StoreKey: Hashable {
            let group: GroupIdentifier
            let name: FilePath.Component
        }

        private let sources: [Source]
        private(set) var groups: [GroupIdentifier: Group] = [:]
        /// The file whose entry of a store counts.
        private var owners: [StoreKey: FilePath?] = [:]
        /// The file whose entry of an app counts.
        private var appOwners: [StoreKey: FilePath?] = [:]

        init(_ sources: [Source]) {
            self.sources = sources
            for source in sources {
                for group in source.fragment.groups { add(group, of: source) }
            }
        }

        private mutating func add(_ entry: ConfigurationFragment.Group, of source: Source) {
            var merged =
                groups[entry.identifier]
                ?? Group(
                    group: .init(identifier: entry.identifier, directory: entry.directory, stores: []),
                    path: source.fragment.path, line: entry.line, isOfMain: source.isMain,
                    isOfUser: false, order: groups.count)
            if source.isUsers { merged.isOfUser = true }
            if entry.namesDirectory {
                merged.group.directory = entry.directory
                merged.path = source.fragment.path
                merged.line = entry.line
                merged.isOfMain = source.isMain
            }
            for store in entry.stores {
                let key = StoreKey(group: entry.identifier, name: store.store.name.database)
                owners[key] = source.fragment.path
                let index = merged.group.stores.firstIndex { $0.name == store.store.name }
                if let index {
                    merged.group.stores[index] = store.store
                } else {
                    merged.group.stores.append(store.store)
                }
            }
            for app in entry.apps {
                appOwners[StoreKey(group: entry.identifier, name: app.app.name)] = source.fragment.path
                merged.group.apps.removeAll { $0.name == app.app.name }
                merged.group.apps.append(app.app)
            }
            groups[entry.identifier] = merged
        }

        /// Returns the files that contradict more important ones. Throws if the main file contradicts itself.
        func contradictions() throws(ConfigurationError) -> [FilePath?: ConfigurationError] {
            var rejected: [FilePath?: ConfigurationError] = [:]
            var claims = ConfigurationClaims()
            let ordered = sources.filter(\.isMain) + sources.filter { !$0.isMain }.reversed()
            for source in ordered {
                do throws(ConfigurationError) {
                    var new = claims
                    try claim(source.fragment, &new)
                    claims = new
                } catch {
                    if source.isMain { throw error }
                    rejected[source.fragment.path] = error
                }
            }
            return rejected
        }

        private func claim(
            _ fragment: ConfigurationFragment, _ claims: inout ConfigurationClaims
        ) throws(ConfigurationError) {
            for entry in fragment.groups {
                guard let merged = groups[entry.identifier] else { continue }
                if merged.path == fragment.path {
                    try claims.claim(
                        directory: merged.group.directory, of: entry.identifier, at: fragment.path, entry.line)
                }
                for store in entry.stores {
                    let key = StoreKey(group: entry.identifier, name: store.store.name.database)
                    guard owners[key] == .some(fragment.path) else { continue }
                    try claims.claim(store, of: merged.group, at: fragment.path)
                }
                for app in entry.apps {
                    let key = StoreKey(group: entry.identifier, name: app.app.name)
                    guard appOwners[key] == .some(fragment.path) else { continue }
                    try claims.claim(app, of: merged.group, at: fragment.path)
                }
            }
        }
    }
}

extension Dictionary {
    fileprivate var nonEmpty: Self? { isEmpty ? nil : self }
}
