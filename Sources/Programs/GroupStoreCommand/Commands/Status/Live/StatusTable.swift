import AgentProtocol
import GroupStoreAgent
import LinuxSystem
import RelayStatus

/// The live table: the lines of a screen of any size. A pure function of what is shown.
struct StatusTable {
    var snapshot: StatusSnapshot
    /// The reason why no agent answers, with the time since when; nil while one does.
    var away: (message: String, since: LocalTime)?
    /// The time of the last answer.
    var time: LocalTime

    /// Returns at most `size.rows` lines, each of at most `size.columns` columns.
    func lines(_ size: LiveScreen.Size) -> [LiveScreen.Line] {
        let columns = Columns(snapshot.stores, width: size.columns)
        let notes = (header(size.columns) + notices).flatMap { $0.wrapped(to: size.columns) }
        let fixed = notes + [LiveScreen.Line(columns.heading, .heading)]
        let body = body(columns, width: size.columns, height: max(0, size.rows - fixed.count))
        return (fixed + body).prefix(size.rows).map { $0.cut(to: size.columns) }
    }

    private func header(_ width: Int) -> [LiveScreen.Line] {
        if let away {
            return [LiveScreen.Line("no agent since \(away.since), trying again: \(away.message)", .problem)]
        }
        let summary = snapshot.status.summary
        let facts = [
            "groupstore \(summary.string("agent") ?? "?"), pid \(summary.integer("pid") ?? 0)",
            "\(Counted(summary.integer("groups") ?? 0, "group"))", "\(Counted(snapshot.stores.count, "store"))",
            "\(Counted(summary.integer("subscribers") ?? 0, "subscriber"))",
        ]
        let left = facts.joined(separator: ", ")
        let right = "\(time)"
        let gap = width - DisplayWidth.of(left) - DisplayWidth.of(right)
        return [LiveScreen.Line(gap < 2 ? left : left + String(repeating: " ", count: gap) + right, .plain)]
    }

    /// The problems of the whole agent, above the table.
    private var notices: [LiveScreen.Line] {
        snapshot.status.problems.filter { $0.check != "relocation" }.map { LiveScreen.Line($0.line, .problem) }
    }

    /// Returns the stores' lines. If they don't fit, the stores that need attention come first.
    private func body(_ columns: Columns, width: Int, height: Int) -> [LiveScreen.Line] {
        var blocks = snapshot.stores.map { StoreBlock($0, columns) }
        if blocks.isEmpty { blocks = [StoreBlock(LiveScreen.Line("no stores are served", .dim))] }
        blocks += snapshot.relays.records.map { StoreBlock($0) }
        blocks = blocks.map { $0.wrapped(to: width) }
        if blocks.reduce(0, { $0 + $1.lines.count }) > height {
            blocks = blocks.filter(\.needsAttention) + blocks.filter { !$0.needsAttention }
        }
        let lines = blocks.flatMap(\.lines)
        guard lines.count > height, height > 0 else { return lines }
        return lines.prefix(height - 1) + [LiveScreen.Line("… \(Counted(lines.count - height + 1, "more line"))", .dim)]
    }
}

extension StatusTable {
    /// The widths of the columns. Where the terminal is narrow, the less important ones are left out.
    struct Columns {
        private let name: Int
        private let shown: [Column]

        private struct Column {
            let title: String
            let width: Int
            let isNumber: Bool
        }

        private static let all = [
            Column(title: "STATE", width: 10, isNumber: false), Column(title: "CHANGES/S", width: 9, isNumber: true),
            Column(title: "SUBSCRIBERS", width: 11, isNumber: true), Column(title: "CHANGES", width: 9, isNumber: true),
        ]
        private static let shortestName = 16

        init(_ stores: [StatusSnapshot.Store], width: Int) {
            var shown = Self.all
            func rest() -> Int { width - shown.reduce(0) { $0 + $1.width + 2 } }
            while !shown.isEmpty, rest() < Self.shortestName { shown.removeLast() }
            let longest = stores.map { DisplayWidth.of($0.name) }.max() ?? 0
            name = max(1, min(rest(), max(longest, Self.shortestName)))
            self.shown = shown
        }

        var heading: String { line("STORE", shown.map(\.title)) }

        /// Returns a store's line. A name that is too long loses its beginning, which is the group's.
        func line(_ store: String, _ cells: [String]) -> String {
            let fitted = zip(shown, cells).map { column, cell in
                DisplayWidth.fit(cell, to: column.width, rightAligned: column.isNumber)
            }
            return ([DisplayWidth.fit(DisplayWidth.cutStart(store, to: name), to: name)] + fitted)
                .joined(separator: "  ")
        }
    }

    /// The lines of one store: itself, its subscribers, and what it waits for. Or those of a relay.
    struct StoreBlock {
        private(set) var lines: [LiveScreen.Line] = []
        private(set) var needsAttention = false

        init(_ store: StatusSnapshot.Store, _ columns: Columns) {
            let state = store.row.string("state") ?? "?"
            let isFollowed = !["unreadable", "unwatched"].contains(state)
            let cells = [
                state, store.rate.map(Self.rate) ?? "-", "\(store.row.integer("subscribers") ?? 0)",
                store.changes.map { "\($0)" } ?? "-",
            ]
            add(columns.line(store.name, cells), isFollowed ? .plain : .problem)
            if let detail = store.row.string("detail") { add("  \(detail)", isFollowed ? .dim : .problem) }
            if let relocation = store.row.object("relocation"), relocation.string("state") == "relocating" {
                add("  \(AgentStatus.relocation(relocation))", .warning)
            }
            let presenters = store.row.objects("presenters").map(FileHolder.init)
            if !presenters.isEmpty { add("  presented by \(presenters.list)", .dim) }
            for subscription in store.subscriptions { add(subscription) }
            for place in store.legacy { add(legacy: place) }
        }

        init(_ line: LiveScreen.Line) { lines = [line] }

        /// Returns the block with its lines wrapped: at their ends are the processes to look for.
        func wrapped(to columns: Int) -> StoreBlock {
            var block = self
            block.lines = lines.flatMap { $0.wrapped(to: columns) }
            return block
        }

        init(_ relay: RelayRecord) {
            let hasEnded = !relay.isRunning || relay.failure?.code == relay.state
            let isBehind = (relay.lag ?? 0) > 0 || relay.server == nil
            add("relay \(relay.summary)", hasEnded ? .problem : isBehind ? .warning : .plain)
            for follower in relay.followers { add("  follower \(follower.name)  \(follower.position)", .dim) }
        }

        private mutating func add(_ text: String, _ style: LiveScreen.Style) {
            lines.append(LiveScreen.Line(text, style))
            if style == .warning || style == .problem { needsAttention = true }
        }

        private mutating func add(_ subscription: JSONObject) {
            let seconds = subscription.silentSeconds
            let isStuck = seconds.map { $0 >= ProblemLimits.standardStuckSubscriber } ?? false
            let style: LiveScreen.Style =
                isStuck ? .problem : (subscription.integer("behind") ?? 0) > 0 ? .warning : .dim
            let progress = AgentStatus.progress(ofSubscription: subscription, asDuration: true)
            add("  \(AgentStatus.holder(subscription))  \(progress)", style)
        }

        /// Adds a place from which the store is to be relocated, unless it was relocated or nothing is there.
        private mutating func add(legacy place: JSONObject) {
            let state = place.string("state") ?? ""
            guard !["absent", "relocated"].contains(state) || place.string("detail") != nil else { return }
            let isProblem = place.integer("exit") != nil
            add(
                "  legacy \(place.printablePath("path"))  \(AgentStatus.state(place))", isProblem ? .problem : .warning)
        }

        /// Returns a rate with a digit after the point where that matters.
        static func rate(_ value: Double) -> String {
            value == 0 ? "0" : value < 100 ? "\((value * 10).rounded() / 10)" : "\(Int(value.rounded()))"
        }
    }
}
