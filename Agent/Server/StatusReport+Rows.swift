import AgentProtocol
import FileCoordination
import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import StoreWatching
import SystemPackage

/// The rows of the answer to `status`.
extension StatusReport {
    func row(of group: Configuration.Group, isBrief: Bool) -> JSONObject {
        var row: JSONObject = ["group": .string(group.identifier.rawValue)]
        row.setPath("directory", bytes: group.directory.bytes)
        if !isBrief { row["exists"] = .bool((try? Directory(group.directory)) != nil) }
        if group.isDiscovered { row["configured"] = false }
        return row
    }

    /// `receipts`: those of the group; nil for a brief row.
    func row(
        of store: StoreAddress, group: Configuration.Group, feed: Publisher.StoreStatus?,
        receipts: [RelocationReceipt]?, requester: Requester
    ) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: store.bytes)
        let name = FilePath.Component(bytes: store.name)
        if let name {
            row.setPath("path", bytes: group.directory.appending(name).bytes)
            if receipts != nil {
                row["exists"] = .bool((try? Directory(group.directory).status(name)).flatMap { $0 } != nil)
            }
        }
        let state = states[store]
        row["state"] = state.map { .string($0.rawValue) }
        row["detail"] = states.detail(store).map { .string($0) }
        let hazards = states.hazards(store).map { HazardDescription($0) }.map {
            JSONValue.object(requester.isTrusted ? $0.json : $0.withoutPlaces.json)
        }
        if !hazards.isEmpty { row["hazards"] = .array(hazards) }
        row["rows_failed"] = rowProblems.problem(of: store).map { .object($0.json) }
        row["subscribers"] = .integer(Int64(feed?.subscriptions.count ?? 0))
        if let name {
            let item = ClaimedItem(container: store.group, path: FilePath(root: nil, [name]))
            row["presenters"] = .array(presenters.holders(presenting: item).map { .object($0.json) })
        }
        if requester.isTrusted { row["relocation"] = feed?.relocation.map { .object($0.json) } }
        row["token"] = feed.map { .string($0.token) }
        // Of a store that nobody follows, nothing is counted.
        if state != .idle { row["counts"] = feed.map { .object($0.counts.json(with: $0.subscriptions.map(\.counts))) } }
        let last = receipts?.last { receipt in name.map { receipt.name.path == FilePath(root: nil, [$0]) } ?? false }
        // It contains the store's former path.
        if requester.isTrusted { row["last_relocation"] = last.map { .object($0.json) } }
        return row
    }

    func row(
        of subscription: SubscriptionStatus, _ store: StoreAddress, program: (pid_t) -> String?
    ) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: store.bytes)
        for member in subscription.json(program: program).members { row[member.key] = member.value }
        return row
    }

    func row(of legacy: LegacyStatus) -> JSONObject {
        var row = JSONObject()
        row.setPath("store", bytes: legacy.store.bytes)
        row.setPath("path", bytes: legacy.path.bytes)
        row["state"] = .string(legacy.state)
        let detail = legacy.detail ?? states.unwatchable(legacy.path.removingLastComponent())
        row["detail"] = detail.map { .string($0) }
        row["code"] = legacy.code.map { .string($0) }
        row["exit"] = legacy.exitCode.map { .integer(Int64($0)) }
        row["waiting_seconds"] = legacy.waitingSince.map { .number($0.duration(to: .now).seconds) }
        return row
    }
}

extension StatusReport {
    func row(of app: AppStatus) -> JSONObject {
        var row: JSONObject = ["group": .string(app.group.rawValue)]
        row.setPath("path", bytes: app.path.bytes)
        row.setPath("to", bytes: app.destination.bytes)
        row["state"] = .string(app.state)
        let detail = app.detail ?? states.unwatchable(app.path.removingLastComponent())
        row["detail"] = detail.map { .string($0) }
        row["code"] = app.code.map { .string($0) }
        row["exit"] = app.exitCode.map { .integer(Int64($0)) }
        row["waiting_seconds"] = app.waitingSince.map { .number($0.duration(to: .now).seconds) }
        if let left = app.leftBehind { row.setPath("left_behind", bytes: left.bytes) }
        return row
    }
}

extension LegacyStatus {
    func isIn(_ group: Configuration.Group) -> Bool { store.group == group.identifier.rawValue }
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
