import AgentProtocol
import CommandSupport
import FoundationEssentials
import GroupStoreAgent
import LinuxSystem
import RelayStatus

/// The status as lines, or as objects of JSON: first everything, then each row that has changed.
final class LiveStatusLines: LiveStatusView {
    private let output: Output
    private var snapshot: StatusSnapshot?
    /// The rows that were printed last, in their order, without what changes all the time.
    private var printed: [(key: String, row: Row)] = []
    /// The rows of the last answer.
    private var stores: [(key: String, row: Row)] = []
    /// The last line about the agent itself.
    private var agent: Row?

    private struct Row: Equatable {
        var object: JSONObject
        var text: String
    }

    init(_ output: Output) { self.output = output }

    func show(_ update: StatusPoller.Update) {
        switch update {
        case .status(let status, let relays, let instant):
            let snapshot = StatusSnapshot(status, relays, at: instant, after: snapshot)
            self.snapshot = snapshot
            showAgent(Self.row(ofAgent: status))
            stores = rows(snapshot)
            show(stores + Self.rows(relays))
        case .away(let message, let relays):
            showAgent(
                Row(
                    object: ["type": "agent", "state": "away", "message": .string(message)],
                    text: "no agent: \(message)"))
            // The agent's own rows are neither gone nor known; the relays don't need it.
            show(stores + Self.rows(relays))
        }
    }

    func redraw() {}
    func suspend() {}
    func end() {}

    // MARK: What has changed

    private func show(_ rows: [(key: String, row: Row)]) {
        let before = Dictionary(printed.map { ($0.key, $0.row) }) { $1 }
        let keys = Set(rows.map(\.key))
        for (key, row) in rows {
            let last = before[key]
            if output.json ? last?.object != row.object : last?.text != row.text { print(row) }
        }
        for (key, row) in printed where !keys.contains(key) {
            var gone = row
            gone.object["gone"] = true
            gone.text = "gone: \(row.text)"
            print(gone)
        }
        printed = rows
    }

    private func showAgent(_ row: Row) {
        guard agent != row else { return }
        agent = row
        print(row)
    }

    private func print(_ row: Row) {
        var object: JSONObject = ["type": row.object["type"] ?? .null]
        object["time"] = .time(Date.now.timeIntervalSince1970)
        for member in row.object.members where member.key != "type" { object[member.key] = member.value }
        output.record(object, "\(LocalTime.now())  \(row.text)")
    }

    // MARK: Rows

    private static func row(ofAgent status: AgentStatus) -> Row {
        let summary = status.summary
        var object: JSONObject = ["type": "agent", "state": "answering"]
        for key in ["agent", "pid", "socket", "socket_b64", "epoch", "reload_failed", "configuration_problems"] {
            object[key] = summary[key]
        }
        let problems = status.problems.filter { $0.check != "relocation" }.map { "; \($0.line)" }.joined()
        return Row(
            object: object,
            text: "agent \(summary.string("agent") ?? "?"), pid \(summary.integer("pid") ?? 0), answers\(problems)")
    }

    private func rows(_ snapshot: StatusSnapshot) -> [(key: String, row: Row)] {
        snapshot.stores.flatMap { store in
            var object = store.row
            // Only whole answers have them.
            for key in ["exists", "last_relocation"] { object[key] = nil }
            object["changes_per_second"] = store.changes.map { _ in .number(store.rate ?? 0) }
            let relocation = store.row.object("relocation").map { "; \(AgentStatus.relocation($0))" } ?? ""
            let rate = store.rate.map { $0 > 0 ? "\(StatusTable.StoreBlock.rate($0)) changes/s, " : "" } ?? ""
            let facts =
                "\(rate)\(store.changes.map { "\(Counted($0, "change")), " } ?? "")"
                + "\(Counted(store.row.integer("subscribers") ?? 0, "subscriber"))"
            let text = "\(store.name)  \(AgentStatus.state(store.row))  \(facts)\(relocation)"
            return [("store \(store.name)", Row(object: object, text: text))]
                + store.subscriptions.map { subscription($0, of: store) } + store.legacy.map { legacy($0, of: store) }
        }
    }

    private func subscription(_ row: JSONObject, of store: StatusSnapshot.Store) -> (key: String, row: Row) {
        var object = row
        // They change with each answer; the first one follows from `lagging_since`.
        for key in ["lagging_seconds", "unread_seconds"] { object[key] = nil }
        let isBehind = (row.integer("behind") ?? 0) > 0
        let isSilent = (row.silentSeconds ?? 0) >= ProblemLimits.standardStuckSubscriber
        let progress =
            isBehind ? AgentStatus.progress(ofSubscription: row) : isSilent ? "does not read" : "up to date"
        return (
            "subscription \(store.name) \(row.integer("connection") ?? 0)",
            Row(object: object, text: "\(store.name)  subscriber \(AgentStatus.holder(row))  \(progress)")
        )
    }

    private func legacy(_ row: JSONObject, of store: StatusSnapshot.Store) -> (key: String, row: Row) {
        let path = row.printablePath("path")
        return (
            "legacy \(path)",
            Row(object: row, text: "\(store.name)  legacy \(path)  \(AgentStatus.state(row))")
        )
    }

    private static func rows(_ relays: RelayRows) -> [(key: String, row: Row)] {
        relays.records.map { record in
            var object = record.object
            // They change all the time.
            for key in ["updated", "lag_seconds"] { object[key] = nil }
            let key = "relay \(record.role.rawValue) \(record.stream) \(record.follower ?? "") \(record.store.path)"
            return (key, Row(object: object, text: record.summary))
        }
    }
}
