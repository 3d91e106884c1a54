import AgentProtocol
import FileCoordination
import FoundationEssentials
import Glibc
import GroupContainers
import StoreFollowing
import LinuxSystem
import SystemPackage

/// Builds the answer to `status`: the served groups and stores, and their state.
package struct StatusReport: Sendable {
    private let publisher: Publisher
    private let configuration: CurrentConfiguration
    private let states: FollowingStates
    private let scheduler: (any RelocationScheduling)?
    private let presenters: InProcessRegistry
    private let socket: FilePath
    private let version: String

    package init(
        publisher: Publisher, configuration: CurrentConfiguration, states: FollowingStates,
        scheduler: (any RelocationScheduling)?, presenters: InProcessRegistry, socket: FilePath, version: String
    ) {
        self.publisher = publisher
        self.configuration = configuration
        self.states = states
        self.scheduler = scheduler
        self.presenters = presenters
        self.socket = socket
        self.version = version
    }

    struct Report {
        let rows: [AgentMessage]
        let summary: JSONObject
    }

    /// Returns one object per group, store and legacy store that the requester may see. `group` limits it to one.
    func report(to requester: Requester, id: JSONValue?, group identifier: String?) -> Report {
        let feed = publisher.status()
        let visible = Visible(configuration.value.groups.map { ($0, stores(of: $0, feed)) }, requester)
        let legacy = requester.isTrusted ? scheduler?.statusRows() ?? [] : []
        var rows: [(String, JSONObject)] = []
        // One process may have thousands of subscriptions.
        var programs: [pid_t: String] = [:]
        func program(_ pid: pid_t) -> String {
            if let known = programs[pid] { return known }
            let program = FileHolder.program(of: pid)
            programs[pid] = program
            return program
        }
        for (group, stores) in visible.groups where identifier.map({ $0 == group.identifier.rawValue }) ?? true {
            rows.append(("group", row(of: group)))
            let receipts = (try? GroupContainer(group.directory).receipts()) ?? []
            for store in stores {
                rows.append(
                    ("store", row(of: store, group: group, feed: feed[store], receipts: receipts, requester: requester))
                )
                let visibleSubscriptions = (feed[store]?.subscriptions ?? []).filter {
                    requester.isTrusted || $0.peer?.uid == requester.peer.uid
                }
                rows += visibleSubscriptions.map { ("subscription", row(of: $0, store, program: program)) }
            }
            rows += legacy.filter { $0.store.group == group.identifier.rawValue }.map { ("legacy", row(of: $0)) }
        }
        let messages = rows.map { type, object in
            var object = object
            if let id { object["id"] = id }
            return AgentMessage.event(type: type, object)
        }
        let known = requester.isTrusted ? feed : feed.filter { visible.stores.contains($0.key) }
        var summary = summary(known, groups: visible.groups.count)
        // They name files and directories.
        if requester.isTrusted, let problems {
            summary["configuration_problems"] = problems
            summary["configuration_problem_count"] = .integer(Int64(configuration.value.problems.count))
        }
        return Report(rows: messages, summary: summary)
    }

    /// The groups and stores that the requester may know of.
    private struct Visible {
        var groups: [(Configuration.Group, [StoreAddress])] = []
        var stores: Set<StoreAddress> = []

        init(_ all: [(Configuration.Group, [StoreAddress])], _ requester: Requester) {
            // All are checked at once.
            let mayEnter = requester.mayOpen(all.map(\.0.directory), X_OK)
            let paths = all.flatMap { group, stores in
                stores.map { store in FilePath.Component(bytes: store.name).map { group.directory.appending($0) } ?? "/"
                }
            }
            var mayRead = requester.mayOpen(paths)[...]
            for (index, (group, stores)) in all.enumerated() {
                let readable = zip(stores, mayRead.prefix(stores.count)).filter(\.1).map(\.0)
                mayRead = mayRead.dropFirst(stores.count)
                guard mayEnter[index] else { continue }
                groups.append((group, readable))
                self.stores.formUnion(readable)
            }
        }
    }

    /// Returns the configured stores, then those that are only subscribed to.
    private func stores(
        of group: Configuration.Group, _ feed: [StoreAddress: Publisher.StoreStatus]
    ) -> [StoreAddress] {
        let configured = group.stores.compactMap {
            StoreAddress(group: group.identifier.rawValue, name: $0.name.database.bytes)
        }
        let others = feed.keys.filter { $0.group == group.identifier.rawValue && !configured.contains($0) }
        return configured + others.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
    }

    private func row(of group: Configuration.Group) -> JSONObject {
        var row: JSONObject = ["group": .string(group.identifier.rawValue)]
        row.setPath("directory", bytes: group.directory.bytes)
        row["exists"] = .bool((try? Directory(group.directory)) != nil)
        if group.isDiscovered { row["configured"] = false }
        return row
    }

    private func row(
        of store: StoreAddress, group: Configuration.Group, feed: Publisher.StoreStatus?,
        receipts: [RelocationReceipt], requester: Requester
    ) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: store.bytes)
        let name = FilePath.Component(bytes: store.name)
        if let name {
            row.setPath("path", bytes: group.directory.appending(name).bytes)
            row["exists"] = .bool((try? Directory(group.directory).status(name)).flatMap { $0 } != nil)
        }
        row["state"] = states[store].map { .string($0.rawValue) }
        row["detail"] = states.detail(store).map { .string($0) }
        row["subscribers"] = .integer(Int64(feed?.subscriptions.count ?? 0))
        if let name {
            let item = ClaimedItem(container: store.group, path: FilePath(root: nil, [name]))
            row["presenters"] = .array(presenters.holders(presenting: item).map { .object($0.json) })
        }
        if requester.isTrusted { row["relocation"] = feed?.relocation.map { .object($0.json) } }
        row["token"] = feed.map { .string($0.token) }
        let last = receipts.last { receipt in name.map { receipt.name.path == FilePath(root: nil, [$0]) } ?? false }
        // It contains the store's former path.
        if requester.isTrusted { row["last_relocation"] = last.map { .object($0.json) } }
        return row
    }

    private func row(
        of subscription: SubscriptionStatus, _ store: StoreAddress, program: (pid_t) -> String
    ) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: store.bytes)
        for member in subscription.json(program: program).members { row[member.key] = member.value }
        return row
    }

    private func row(of legacy: LegacyStatus) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: legacy.store.bytes)
        row.setPath("path", bytes: legacy.path.bytes)
        row["state"] = .string(legacy.state)
        let detail = legacy.detail ?? states.unwatchable(legacy.path.removingLastComponent())
        row["detail"] = detail.map { .string($0) }
        row["code"] = legacy.code.map { .string($0) }
        row["exit"] = legacy.exitCode.map { .integer(Int64($0)) }
        return row
    }

    private func summary(_ feed: [StoreAddress: Publisher.StoreStatus], groups: Int) -> JSONObject {
        var summary: JSONObject = ["agent": .string(version), "pid": .integer(Int64(getpid()))]
        summary.setPath("socket", bytes: socket.bytes)
        summary["epoch"] = .string(publisher.epoch)
        summary["groups"] = .integer(Int64(groups))
        summary["stores"] = .integer(Int64(feed.count))
        if let rejection = configuration.rejection {
            let failed: JSONObject = [
                "message": .string(rejection.message), "hint": .string(rejection.remedy),
                "at": .string(rejection.at.formatted(.iso8601)),
            ]
            summary["reload_failed"] = .object(failed)
        }
        summary["subscribers"] = .integer(Int64(feed.values.reduce(0) { $0 + $1.subscriptions.count }))
        summary["descriptors"] = .object([
            "open": .integer(Self.openDescriptors),
            "limit": .integer(Int64(ResourceLimit.descriptors)),
        ])
        return summary
    }

    /// The errors in files of the configuration that are left out, or used as they were; nil if there are none.
    private var problems: JSONValue? {
        let problems = configuration.value.problems
        guard !problems.isEmpty else { return nil }
        // The answer is one line, and nobody reads more.
        let shown = problems.prefix(Self.maximumProblems).map { problem in
            var object: JSONObject = [
                "message": .string(Self.shortened(problem.fullMessage)),
                "hint": .string(Self.shortened(problem.remedy)),
            ]
            if let path = problem.path?.bytes, path.count <= Self.maximumLength { object.setPath("path", bytes: path) }
            object["line"] = problem.line.map { .integer(Int64($0)) }
            return JSONValue.object(object)
        }
        return .array(shown)
    }

    /// Counted in bytes: one character may have any number of them.
    private static func shortened(_ text: String) -> String {
        text.utf8.count <= maximumLength ? text : String(decoding: text.utf8.prefix(maximumLength), as: UTF8.self) + "…"
    }

    private static let maximumLength = 400
    private static let maximumProblems = 10

    /// The number of open descriptors. Since Linux 6.2 it is the directory's size (proc(5)); listing them takes long.
    private static var openDescriptors: Int64 {
        if let size = FileStatus(following: "/proc/self/fd")?.size, size > 0 { return Int64(size) }
        return Int64((try? Directory("/proc/self/fd").names().count) ?? 0)
    }
}

extension RelocationReceipt {
    /// The receipt's members for `status`.
    package var json: JSONObject {
        var object = JSONObject()
        object["at"] = .string(at.formatted(.iso8601))
        object.setPath("from", bytes: from.path.bytes)
        object["method"] = .string(method.rawValue)
        object["bytes"] = .integer(bytes)
        object["retirement"] = .string(retirement.rawValue)
        if assumedClosed { object["assumed_closed"] = true }
        return object
    }
}
