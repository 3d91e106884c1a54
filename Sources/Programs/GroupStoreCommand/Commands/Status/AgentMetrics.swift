import AgentProtocol
import LinuxSystem

/// An agent's status as metrics.
struct AgentMetrics {
    private(set) var text = OpenMetricsText()
    private let status: AgentStatus
    private typealias Sample = OpenMetricsText.Sample

    /// The metrics if no agent answers.
    static let noAgent: OpenMetricsText = {
        var text = OpenMetricsText()
        text.add("groupstore_up", .gauge, help: upHelp, [Sample(0)])
        return text
    }()

    private static let upHelp = "1 if the agent answers, else 0."

    init(_ status: AgentStatus, _ limits: ProblemLimits) {
        self.status = status
        text.add("groupstore_up", .gauge, help: Self.upHelp, [Sample(1)])
        addAgent()
        addConnections()
        addProblems(limits)
        addStores()
        addSubscribers()
        addLegacyPlaces()
    }

    private var summary: JSONObject { status.summary }

    private mutating func addAgent() {
        let version = summary.string("agent") ?? ""
        text.add(
            "groupstore_agent_build", .gauge, help: "Always 1; the label is the agent's version.",
            [Sample(1, ["version": version])])
        if let started = summary.string("started").flatMap(WireTime.seconds) {
            text.add(
                "groupstore_agent_start_time_seconds", .gauge, unit: "seconds",
                help: "The time at which the agent started, since 1970. All counters began at zero then.",
                [Sample(Int64(started))])
        }
        if let seconds = summary.number("cpu_seconds") {
            text.add(
                "groupstore_agent_cpu_seconds", .counter, unit: "seconds",
                help: "The agent's processor time, in user and kernel mode.", [Sample(.number(seconds))])
        }
        if let bytes = summary.integer("resident_bytes") {
            text.add(
                "groupstore_agent_resident_memory_bytes", .gauge, unit: "bytes", help: "The agent's memory.",
                [Sample(bytes)])
        }
        let descriptors = summary.object("descriptors")
        add("groupstore_agent_open_descriptors", "The files that the agent has open.", descriptors?.integer("open"))
        add(
            "groupstore_agent_max_descriptors", "The files that the agent may have open.", descriptors?.integer("limit")
        )
        add("groupstore_agent_groups", "The groups that the agent serves.", summary.integer("groups"))
        add(
            "groupstore_agent_stores",
            "The stores that the agent follows: those configured, and those with subscribers.",
            summary.integer("stores"))
        if let reloads = summary.object("reloads") {
            text.add(
                "groupstore_agent_reloads", .counter, help: "The reloads of the configuration, by result.",
                ["applied", "rejected"].map { Sample(reloads.integer($0) ?? 0, ["result": $0]) })
        }
    }

    private mutating func add(_ name: String, _ help: String, _ value: Int64?) {
        if let value { text.add(name, .gauge, help: help, [Sample(value)]) }
    }

    private mutating func addConnections() {
        guard let connections = summary.object("connections") else { return }
        add("groupstore_agent_connections", "The open connections.", connections.integer("open"))
        for (member, help) in [
            ("accepted", "The connections accepted."),
            ("lost", "The connections that ended with events or answers which their clients had not taken."),
            ("unauthorized", "The connections ended because their user may no longer read a store."),
        ] {
            text.add(
                "groupstore_agent_connections_\(member)", .counter, help: help,
                [Sample(connections.integer(member) ?? 0)])
        }
        text.add(
            "groupstore_agent_connections_refused", .counter, help: "The connections not accepted, by reason.",
            counts(connections.object("refused")).map { Sample($0.count, ["reason": $0.word]) })
    }

    private mutating func addProblems(_ limits: ProblemLimits) {
        let problems = status.allProblems(limits)
        let checks = ["hazard", "relocation", "waiting", "reload", "agent_configuration", "feed", "rows", "subscriber"]
        text.add(
            "groupstore_problems", .gauge, help: "The problems that groupstore status --check reports, by kind.",
            checks.map { check in Sample(problems.filter { $0.check == check }.count, ["check": check]) })
    }

    private func counts(_ object: JSONObject?) -> [(word: String, count: Int64)] {
        (object?.members ?? []).compactMap { member in
            if case .integer(let count) = member.value { (member.key, count) } else { nil }
        }
    }
}

// MARK: - Stores

extension AgentMetrics {
    private var stores: [(name: String, row: JSONObject)] {
        status.rows.filter { $0.type == "store" }.map { ($0.object.labelPath("store"), $0.object) }
    }

    /// The stores that aren't idle. Of those that are, nothing is known.
    private var followed: [(name: String, row: JSONObject)] { stores.filter { $0.row.string("state") != "idle" } }

    private mutating func addStores() {
        text.add(
            "groupstore_store_followed", .gauge,
            help: "1 if the agent notices the store's commits, 0 if it can't; the store need not exist. Absent while "
                + "nobody listens.",
            followed.map { name, row in
                let isFollowed = !["unreadable", "unwatched"].contains(row.string("state") ?? "unwatched")
                return Sample(isFollowed ? 1 : 0, ["store": name])
            })
        text.add(
            "groupstore_store_subscribers", .gauge, help: "The store's subscriptions.",
            stores.map { Sample($0.row.integer("subscribers") ?? 0, ["store": $0.name]) })
        text.add(
            "groupstore_store_presenters", .gauge, help: "The processes that present the store.",
            stores.filter { $0.row["presenters"] != nil }.map {
                Sample($0.row.objects("presenters").count, ["store": $0.name])
            })
        addCounts("changes", help: "The changes published. One may stand for the commits of a few milliseconds.")
        addCounts("lags", help: "The times that a subscriber's socket was full when an event came.")
        addCounts("overflows", help: "The times that a reset replaced the events which waited for a slow subscriber.")
        addCounts("resets", label: "reason", help: "The resets published, by reason.")
        addCounts("relocations", label: "outcome", help: "The relocations and migrations that ended, by outcome.")
    }

    /// Adds a counter of each store. With a label, the status has an object with a number for each of its values.
    private mutating func addCounts(_ member: String, label: String? = nil, help: String) {
        let samples = followed.flatMap { name, row -> [Sample] in
            guard let object = row.object("counts") else { return [] }
            guard let label else { return [Sample(object.integer(member) ?? 0, ["store": name])] }
            return counts(object.object(member)).map { Sample($0.count, ["store": name, label: $0.word]) }
        }
        text.add("groupstore_store_\(member)", .counter, help: help, samples)
    }

    private mutating func addSubscribers() {
        let all = Dictionary(
            grouping: status.rows.filter { $0.type == "subscription" }.map(\.object)
        ) { $0.labelPath("store") }
        func add(_ name: String, unit: String? = nil, help: String, value: ([JSONObject]) -> OpenMetricsText.Value) {
            text.add(
                "groupstore_store_\(name)", .gauge, unit: unit, help: help,
                followed.map { store in Sample(value(all[store.name] ?? []), ["store": store.name]) })
        }
        add("lagging_subscribers", help: "The subscribers whose socket is full.") { rows in
            .integer(Int64(rows.filter { $0.lagSeconds != nil }.count))
        }
        add("behind_events", help: "The events that the slowest subscriber has not been sent.") { rows in
            .integer(rows.compactMap { $0.integer("behind") }.max() ?? 0)
        }
        add("lag_seconds", unit: "seconds", help: "The time for which the slowest subscriber has not read.") { rows in
            .number(rows.compactMap(\.silentSeconds).max() ?? 0)
        }
        add("waiting_bytes", unit: "bytes", help: "The bytes for subscribers that wait in the agent.") { rows in
            .integer(Self.sum("waiting_bytes", rows))
        }
        add("unread_bytes", unit: "bytes", help: "Kernel memory with bytes that subscribers have not read.") { rows in
            .integer(Self.sum("unread_bytes", rows))
        }
    }

    /// Adds the bytes of all connections. A connection that has several subscriptions to the stores counts once each.
    private static func sum(_ member: String, _ rows: [JSONObject]) -> Int64 {
        rows.compactMap { $0.integer(member) }.reduce(0, +)
    }

    private mutating func addLegacyPlaces() {
        let rows = status.rows.filter { $0.type == "legacy" }.map(\.object)
        let places = Dictionary(grouping: rows) { [$0.labelPath("store"), $0.string("state") ?? ""] }
        text.add(
            "groupstore_store_legacy_places", .gauge,
            help: "The places from which the store is relocated, by state.",
            places.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map { key, rows in
                Sample(rows.count, ["store": key[0], "state": key[1]])
            })
    }
}

extension JSONObject {
    /// Returns a path as the value of a label.
    func labelPath(_ member: String) -> String { OpenMetricsText.label(path(member) ?? []) }
}
