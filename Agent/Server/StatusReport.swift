import AgentProtocol
import FileCoordination
import FoundationEssentials
import Glibc
import GroupContainers
import StoreWatching
import LinuxSystem
import SystemPackage

/// Builds the answer to `status`: the served groups and stores, and their state.
package struct StatusReport: Sendable {
    let publisher: Publisher
    let configuration: CurrentConfiguration
    let states: FollowingStates
    let scheduler: (any RelocationScheduling)?
    let presenters: InProcessRegistry
    let rowProblems: RowProblems
    let socket: FilePath
    let version: String
    let started = Date()

    struct Report {
        let rows: [AgentMessage]
        let summary: JSONObject
    }

    /// Returns one object per group, store, subscription, legacy store and app's directory that the requester may see,
    /// as far as the operation asks for them.
    func report(_ operation: StatusOperation, to requester: Requester, id: JSONValue?) -> Report {
        let feed = publisher.status(of: operation.store)
        func isWanted(_ group: Configuration.Group) -> Bool {
            operation.onlyGroup.map { $0 == group.identifier.rawValue } ?? true
        }
        // The summary counts what another user may know of, whichever rows they ask for.
        let groups = configuration.value.groups.filter { !requester.isTrusted || isWanted($0) }
        let visible = Visible(
            groups.map { ($0, stores(of: $0, feed).filter { operation.store == nil || $0 == operation.store }) },
            requester)
        let legacy = requester.isTrusted ? scheduler?.statusRows() ?? [] : []
        var rows: [(String, JSONObject)] = []
        // One process may have thousands of subscriptions.
        var programs: [pid_t: String] = [:]
        func program(_ pid: pid_t) -> String? {
            guard !operation.isBrief else { return nil }
            if let known = programs[pid] { return known }
            let program = FileHolder.program(of: pid)
            programs[pid] = program
            return program
        }
        for (group, stores) in visible.groups where isWanted(group) {
            rows.append(("group", row(of: group, isBrief: operation.isBrief)))
            let receipts = operation.isBrief ? nil : (try? GroupContainer(group.directory).receipts()) ?? []
            for store in stores {
                rows.append(
                    ("store", row(of: store, group: group, feed: feed[store], receipts: receipts, requester: requester))
                )
                let visibleSubscriptions = (feed[store]?.subscriptions ?? []).filter {
                    requester.isTrusted || $0.peer?.uid == requester.peer.uid
                }
                rows += visibleSubscriptions.map { ("subscription", row(of: $0, store, program: program)) }
            }
            rows += legacy.filter { stores.contains($0.store) || operation.store == nil && $0.isIn(group) }
                .map { ("legacy", row(of: $0)) }
            guard requester.isTrusted, operation.store == nil else { continue }
            rows += (scheduler?.appRows() ?? []).filter { $0.group == group.identifier }.map { ("app", row(of: $0)) }
        }
        let messages = rows.map { type, object in
            var object = object
            if let id { object["id"] = id }
            return AgentMessage.event(type: type, object)
        }
        return Report(rows: messages, summary: summary(operation, feed, visible, requester))
    }

    /// The groups and stores that the requester may know of.
    struct Visible {
        var groups: [(Configuration.Group, [StoreAddress])] = []
        var stores: Set<StoreAddress> = []

        init(_ all: [(Configuration.Group, [StoreAddress])], _ requester: Requester) {
            guard !requester.isTrusted else {
                groups = all
                stores = Set(all.flatMap(\.1))
                return
            }
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
        let names = others.map { (store: $0, bytes: $0.bytes) }
        return configured + names.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }.map(\.store)
    }
}
