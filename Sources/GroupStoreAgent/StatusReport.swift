import AgentProtocol
import FileCoordination
import FoundationEssentials
import Glibc
import GroupContainer
import LinuxSystem
import SystemPackage

/// What `status` tells: what is served, and how it stands.
package struct StatusReport: Sendable {
    private let hub: Hub
    private let configuration: CurrentConfiguration
    private let states: FollowingStates
    private let scheduler: (any RelocationScheduling)?
    private let presenters: MemoryRegistry
    private let socket: FilePath
    private let version: String

    package init(
        hub: Hub, configuration: CurrentConfiguration, states: FollowingStates,
        scheduler: (any RelocationScheduling)?, presenters: MemoryRegistry, socket: FilePath, version: String
    ) {
        self.hub = hub
        self.configuration = configuration
        self.states = states
        self.scheduler = scheduler
        self.presenters = presenters
        self.socket = socket
        self.version = version
    }

    /// One object a group, a store and a legacy store; `group` limits it to one.
    func rows(id: JSONValue?, group only: String?) -> [AgentMessage] {
        let feed = hub.status()
        let legacy = scheduler?.statusRows() ?? []
        var rows: [(String, JSONObject)] = []
        for group in configuration.value.groups where only.map({ $0 == group.identifier.rawValue }) ?? true {
            rows.append(("group", row(of: group)))
            let receipts = (try? GroupContainer(group.directory).receipts()) ?? []
            for store in stores(of: group, feed) {
                rows.append(("store", row(of: store, group, feed[store], receipts)))
                rows += (feed[store]?.subscriptions ?? []).map { ("subscription", row(of: $0, store)) }
            }
            rows += legacy.filter { $0.store.group == group.identifier.rawValue }.map { ("legacy", row(of: $0)) }
        }
        return rows.map { type, object in
            var object = object
            if let id { object["id"] = id }
            return .event(type: type, object)
        }
    }

    /// The configured ones first, then those that are only subscribed to.
    private func stores(
        of group: Configuration.Group, _ feed: [StoreAddress: Hub.StoreStatus]
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
        return row
    }

    private func row(
        of store: StoreAddress, _ group: Configuration.Group, _ feed: Hub.StoreStatus?,
        _ receipts: [RelocationReceipt]
    ) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: store.bytes)
        let name = FilePath.Component(bytes: store.name)
        if let name {
            row.setPath("path", bytes: group.directory.appending(name).bytes)
            row["exists"] = .bool((try? Directory(group.directory).status(name)).flatMap { $0 } != nil)
        }
        row["state"] = states[store].map { .string($0.rawValue) }
        row["subscribers"] = .integer(Int64(feed?.subscriptions.count ?? 0))
        if let name {
            let item = ClaimedItem(container: store.group, path: FilePath(root: nil, [name]))
            row["presenters"] = .array(presenters.holders(presenting: item).map { .object($0.json) })
        }
        row["relocation"] = feed?.relocation.map { .object($0.json) }
        row["token"] = feed.map { .string($0.token) }
        let last = receipts.last { receipt in name.map { receipt.name.path == FilePath(root: nil, [$0]) } ?? false }
        row["last_relocation"] = last.map { .object($0.json) }
        return row
    }

    private func row(of subscription: SubscriptionStatus, _ store: StoreAddress) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: store.bytes)
        for member in subscription.json.members { row[member.key] = member.value }
        return row
    }

    private func row(of legacy: LegacyStatus) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: legacy.store.bytes)
        row.setPath("path", bytes: legacy.path.bytes)
        row["state"] = .string(legacy.state)
        row["detail"] = legacy.detail.map { .string($0) }
        return row
    }

    func summary() -> JSONObject {
        let feed = hub.status()
        var summary: JSONObject = ["agent": .string(version), "pid": .integer(Int64(getpid()))]
        summary.setPath("socket", bytes: socket.bytes)
        summary["epoch"] = .string(hub.epoch)
        summary["groups"] = .integer(Int64(configuration.value.groups.count))
        summary["stores"] = .integer(Int64(feed.count))
        summary["subscribers"] = .integer(Int64(feed.values.reduce(0) { $0 + $1.subscriptions.count }))
        return summary
    }
}

extension RelocationReceipt {
    /// What a person wants to know of it.
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
