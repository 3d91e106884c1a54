import AgentProtocol
import GroupStoreAgent
import LinuxSystem

/// What a live view shows: an answer of the agent, with the rates since the answer before. A pure value.
struct StatusSnapshot {
    struct Store {
        let row: JSONObject
        /// The changes a second; nil if there is no earlier answer to compare with.
        let rate: Double?
        var subscriptions: [JSONObject] = []
        var legacy: [JSONObject] = []

        var name: String { row.printablePath("store") }
        var changes: Int64? { row.object("counts")?.integer("changes") }
    }

    private(set) var stores: [Store] = []
    let status: AgentStatus
    var relays: RelayRows
    private let at: ContinuousClock.Instant

    init(
        _ status: AgentStatus, _ relays: RelayRows, at: ContinuousClock.Instant, after previous: StatusSnapshot?
    ) {
        self.status = status
        self.relays = relays
        self.at = at
        let epoch = status.summary.string("epoch")
        let comparable = previous.flatMap { $0.status.summary.string("epoch") == epoch ? $0 : nil }
        let seconds = comparable?.at.duration(to: at).seconds ?? 0
        var before: [String: Int64] = [:]
        for store in comparable?.stores ?? [] { before[store.name] = store.changes }
        for row in status.rows {
            switch row.type {
            case "store":
                let changes = row.object.object("counts")?.integer("changes")
                var rate: Double?
                if let changes, let last = before[row.object.printablePath("store")], seconds > 0 {
                    rate = Double(max(0, changes - last)) / seconds
                }
                stores.append(Store(row: row.object, rate: rate))
            case "subscription": update(row.object) { $0.subscriptions.append(row.object) }
            case "legacy": update(row.object) { $0.legacy.append(row.object) }
            default: break
            }
        }
    }

    /// Changes the store of a row. The rows of a store follow it, or come later in its group.
    private mutating func update(_ row: JSONObject, _ body: (inout Store) -> Void) {
        let name = row.printablePath("store")
        guard let index = stores.lastIndex(where: { $0.name == name }) else { return }
        body(&stores[index])
    }
}
