import AgentProtocol
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// The groups and stores that a shell offers to complete: those that the agent serves, and those in the directories of
/// the standard configuration. A slow agent is left out, and no error is reported: a person is typing.
struct KnownNames {
    private var stores: [String: Set<String>] = [:]
    /// Identifiers of groups, in alphabetical order.
    var groups: [String] { stores.keys.sorted() }

    init(environment: [String: String]) {
        addServed(environment)
        addLocal(environment)
    }

    /// Returns the names of the stores, as `GROUP_ID/NAME`, in alphabetical order.
    var storeNames: [String] {
        groups.flatMap { group in (stores[group] ?? []).sorted().map { "\(group)/\($0)" } }
    }

    var groupsAndStores: [String] { groups + storeNames }

    /// Returns the identifiers of the archives of the group that the words name after `archive` and its subcommand,
    /// without those that are among the words.
    static func archives(on words: [String], environment: [String: String]) -> [String] {
        let words = words.map(unquoted)
        for word in words.drop(while: { $0 != "archive" }).dropFirst(2) where !word.hasPrefix("-") {
            let home = word.hasPrefix("~/") ? environment["HOME"].map { FilePath($0) } : nil
            let path = home?.pushing(FilePath(String(word.dropFirst(2)))) ?? FilePath(word)
            let group = try? GroupIdentifier(word)?.standardDirectory(environment: environment)
            for directory in [group, path].compactMap(\.self) {
                guard let found = try? GroupContainer(directory).archives(), !found.isEmpty else { continue }
                return found.map(\.id.rawValue).filter { !words.contains($0) }
            }
        }
        return []
    }

    /// A word may have the shell's quotes.
    private static func unquoted(_ word: String) -> String { word.filter { !"'\"\\".contains($0) } }

    /// Returns the names that continue a word in bash: stores as `GROUP_ID/NAME` once the word leaves one group, else
    /// groups as `GROUP_ID/`. bash shows only what follows the last slash, and so would mix the stores of all groups.
    func storeNames(continuing word: String) -> [String] {
        let word = Self.unquoted(word)
        let known = stores.filter { !$0.value.isEmpty && "\($0.key)/".hasPrefix(word.throughFirstSlash) }
        guard known.count > 1 else {
            // bash doesn't quote an expansion in a name that isn't a file.
            return storeNames.filter { known[$0.groupPart] != nil && !$0.contains("$") && !$0.contains("`") }
        }
        return known.keys.sorted().map { $0 + "/" }
    }

    private mutating func add(_ group: String, stores names: [[UInt8]]) {
        // A name must fit on a line, and be what a person can type.
        let typeable = names.compactMap { String(validating: $0, as: UTF8.self) }
            .filter { PrintableText($0).description == $0 }
        stores[group, default: []].formUnion(typeable)
    }

    private mutating func addServed(_ environment: [String: String]) {
        let deadline = Deadline(after: .milliseconds(300))
        guard let socket = try? AgentConnection.standardSocket(environment: environment),
            let connection = try? AgentConnection(socket, deadline: deadline)
        else { return }
        var found: [(group: String, stores: [[UInt8]])] = []
        _ = try? connection.request(.status(StatusOperation(isBrief: true)), deadline: deadline) { type, row in
            if type == "group", let group = row.string("group") { found.append((group, [])) }
            if type == "store", let address = row.path("store").flatMap({ StoreAddress(bytes: $0) }) {
                found.append((address.group, [address.name]))
            }
        }
        for (group, names) in found { add(group, stores: names) }
    }

    private mutating func addLocal(_ environment: [String: String]) {
        for group in Configuration.localGroups(environment: environment) {
            let present = (try? GroupDirectoryStatus.stores(in: Directory(group.directory))) ?? []
            add(
                group.identifier.rawValue,
                stores: group.stores.map(\.name.database.bytes) + present.map(\.bytes))
        }
    }
}

extension Configuration {
    /// The groups of the standard configuration, and those in the standard place. No error is reported.
    static func localGroups(environment: [String: String]) -> [Group] {
        var configuration = (try? Configuration.standard(environment: environment)) ?? Configuration()
        configuration.containers = GroupIdentifier.defaultDirectories(environment: environment)
        configuration.discoverGroups()
        return configuration.groups
    }
}

extension String {
    fileprivate var groupPart: String { String(prefix { $0 != "/" }) }
    fileprivate var throughFirstSlash: String { contains("/") ? groupPart + "/" : self }
}
