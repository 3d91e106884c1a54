import AgentProtocol
import CommandSupport
import Glibc
import GroupStore
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SystemPackage

/// The rows of `watch --values`: after each change of a store, the change batch since the last one, from the agent.
///
/// Of a store without a history, a batch is one step. Beside a steady writer steps come as fast as they are read, so
/// each of a backlog is told with a `change` of its own: whoever is killed goes on after it.
final class WatchedBatches {
    private struct Position {
        /// The history's token; nil while it isn't known.
        var token: String?
        /// The schema of the last batch.
        var schema: String?
        /// True if a batch couldn't be read because the store is being relocated, or because nothing has its name: an
        /// event tells how that ends.
        var isPending = false
        /// True if steps follow that no event was received for.
        var hasMore = false

        /// The position if the rows come from the store's pages.
        var step: HistoryToken? { token.flatMap { HistoryToken($0) }.flatMap { $0.isOfPages ? $0 : nil } }
    }

    private let feed: AgentFeed
    private let filter: HistoryOperation.Filter
    private let output: Output
    private var positions: [Position]
    /// The connection on which batches are read, while some follow.
    private var connection: AgentConnection?

    /// The time for which an agent that is busy, gone, or about to update the history is asked again.
    private static let patience = Duration.seconds(30)
    private static let replyTimeout = Duration.seconds(40)
    /// The rows in one answer.
    private static let pageLength: Int64 = 1000

    /// Throws `CommandFailure` if one of the stores keeps no history.
    init(_ feed: AgentFeed, filter: HistoryOperation.Filter, output: Output) throws {
        self.feed = feed
        self.filter = filter
        self.output = output
        for store in feed.stores where !store.hasHistory {
            throw HistoryError.disabled(store.path)
        }
        positions = feed.stores.map { Position(token: SubscriptionToken($0.token)?.history) }
    }

    /// True if steps follow that no event was received for. Call `printMore` unless an event comes first.
    var hasMore: Bool { positions.contains { $0.hasMore } }

    /// Prints the rows that an event stands for. Returns the event to tell, whose position isn't before that of the
    /// rows; nil if it isn't to be told.
    ///
    /// - Parameter tell: Tells the change of a step that isn't the event's last one. Returns false if nothing is to
    ///   follow: then nil is returned.
    func print(before event: FeedEvent, _ tell: (FeedEvent) throws -> Bool) throws -> FeedEvent? {
        guard let index = feed.stores.firstIndex(where: { $0 === event.store }) else { return event }
        let reached = event.token.flatMap { SubscriptionToken($0)?.history }
        switch event.event {
        case .reset(let reason):
            if let reached, try isTold(index, reason, reached) {
                // Its position is after what was committed since the earlier reset, which is yet to be told.
                positions[index].hasMore = true
                return nil
            }
        case .relocating, .progress: break
        case .change, .branchChange, .relocated, .migrated, .abandoned, .hazard, .hazardOver, nil:
            guard event.tables != nil || positions[index].isPending else { break }
            guard positions[index].token != nil else {
                positions[index].token = reached
                break
            }
            guard try printBatches(index, until: reached.flatMap { HistoryToken($0) }, tell) else { return nil }
        }
        guard let token = event.token else { return event }
        // Its rows are told after a later event.
        if positions[index].isPending { return event.with(token: event.store.told) }
        return event.with(token: position(index, notBefore: token))
    }

    /// Prints a step that no event was received for, and tells its change.
    func printMore(_ tell: (FeedEvent) throws -> Bool) throws {
        guard let index = positions.firstIndex(where: { $0.hasMore }) else { return }
        if let step = try printBatch(index) { _ = try tell(step) }
    }

    /// Returns the later one of a subscription's token and the position of the rows that were printed.
    func position(_ store: WatchedStore, notBefore token: String) -> String {
        feed.stores.firstIndex { $0 === store }.map { position($0, notBefore: token) } ?? token
    }

    private func position(_ index: Int, notBefore token: String) -> String {
        // Of another copy, what was asked for is the later one.
        guard let given = SubscriptionToken(token), let history = given.history.flatMap({ HistoryToken($0) }),
            let printed = positions[index].step, printed.history != history.history || printed.nonce > history.nonce
        else { return token }
        return SubscriptionToken(feed: given.feed, history: printed.description).description
    }

    /// Prints batches up to a position, at least one, or all that are there. Returns false if nothing is to follow.
    private func printBatches(
        _ index: Int, until reached: HistoryToken?, _ tell: (FeedEvent) throws -> Bool
    ) throws -> Bool {
        func isReached() -> Bool {
            guard let reached, let position = positions[index].step else { return false }
            // A new copy of the pages was made after the event.
            return position.history != reached.history || position.nonce >= reached.nonce
        }
        if positions[index].hasMore, isReached() { return true }
        while true {
            let step = try printBatch(index)
            guard positions[index].hasMore, !isReached() else { return true }
            if let step, try !tell(step) { return false }
        }
    }

    /// Prints a whole step, or a page of a history. Returns the step's change, or a bookmark if none of its rows is
    /// wanted; nil if it isn't a step.
    private func printBatch(_ index: Int) throws -> FeedEvent? {
        let start = positions[index].step
        var tables: Set<ExactName> = []
        var (hasLines, isReset) = (false, false)
        repeat {
            guard let lines = try page(index) else { return nil }
            for line in lines {
                hasLines = true
                isReset = isReset || line.string("type") == "reset"
                if let table = line.string("table") { tables.insert(ExactName(table)) }
                if line.string("type") == "table", line["schema"] != nil { tables.insert("sqlite_schema") }
            }
        } while positions[index].hasMore && start != nil && positions[index].step?.nonce == start?.nonce
        guard let start, let end = positions[index].step, start.history == end.history else { return nil }
        let store = feed.stores[index]
        let token = SubscriptionToken(feed: SubscriptionToken(store.told)?.feed, history: end.description).description
        guard hasLines else { return FeedEvent(store, bookmark: token) }
        let changed = ChangedTables(tables.map(\.text), isComplete: true)
        return FeedEvent(store, .change(isReset ? .unknown : changed), token: token)
    }

    /// Advances to the position from which rows lead on after a reset: another file may have come to the store's name,
    /// and then the copy of its pages is a new one. Returns true if an earlier reset stands for this one: it was told
    /// when that copy had been made, and rows lead on from what was printed.
    private func isTold(_ index: Int, _ reason: StoreEvent.ResetReason, _ reached: String) throws -> Bool {
        // All is stale, so the rows until here don't matter.
        guard let given = HistoryToken(reached), given.isOfPages else {
            positions[index] = Position(token: reached)
            return false
        }
        let isOfCopy = positions[index].step?.history == given.history
        // A copy that was put back from a backup has its name, and the number of a printed step may be another one's.
        let printed = isOfCopy && reason != .epoch ? nil : positions[index].step?.description
        let position = try leading(from: printed ?? reached, index, after: reason)
        if printed != nil, position == printed, [.appeared, .replaced, .epoch].contains(reason) { return true }
        positions[index] = Position(token: position ?? (isOfCopy ? reached : printed ?? reached))
        return false
    }

    /// Returns a position, or that of a new copy of the store's pages from which rows lead on instead; nil if that
    /// can't be known.
    private func leading(
        from position: String, _ index: Int, after reason: StoreEvent.ResetReason
    ) throws -> String? {
        // A program that locks the store does so for as long as it likes.
        if reason == .unreadable { return nil }
        let operation = HistoryOperation.changes(
            feed.address(index), since: position, limit: 1, HistoryOperation.Filter())
        let reply = try awaiting { connection throws(AgentConnectionError) in
            try connection.request(.history(operation), deadline: Deadline(after: Self.replyTimeout))
        }
        return reply.map { $0.string("outcome") == "reset" ? $0.string("token") ?? position : position }
    }

    /// Prints a page. Returns its lines; nil if the store is being relocated, or isn't there.
    private func page(_ index: Int) throws -> [JSONObject]? {
        let lines = try awaiting { connection throws(AgentConnectionError) in try printPage(index, connection) }
        positions[index].isPending = lines == nil
        if lines == nil { positions[index].hasMore = false }
        return lines
    }

    /// Makes a request, for which it waits as long as a program locks the store. Returns nil if the store is being
    /// relocated, or isn't there.
    private func awaiting<Success>(
        _ request: (AgentConnection) throws(AgentConnectionError) -> Success
    ) throws -> Success? {
        let giveUp = Deadline(after: Self.patience)
        var hasSaid = output.quiet
        var backoff = Backoff(first: .milliseconds(20), longest: .seconds(2))
        while true {
            do throws(AgentConnectionError) {
                let open = try openConnection()
                let success = try request(open)
                // Held as long as pages follow.
                connection = hasMore ? open : nil
                return success
            } catch {
                connection = nil
                switch error {
                case .refused(let refusal) where ["relocating", "no_such_store"].contains(refusal.code): return nil
                case .refused(let refusal) where ["busy", "no_space"].contains(refusal.code):
                    // A program may lock a store for as long as it likes, and a disk be full.
                    if giveUp.hasPassed, !hasSaid { Self.sayWaiting(refusal) }
                    hasSaid = hasSaid || giveUp.hasPassed
                case .refused(let refusal) where giveUp.hasPassed || !AgentFeed.passing.contains(refusal.code):
                    throw CommandFailure(
                        .badData, code: refusal.code, refusal.message, remedy: refusal.hint ?? "see the agent's log")
                case .interrupted, .notUnderstood, .noSocketPath: throw error
                default: if giveUp.hasPassed { throw error }
                }
            }
            if Interruption.isRequested { throw AgentConnectionError.interrupted }
            pause(backoff.next())
        }
    }

    /// Says for people that rows can't be read for now.
    static func sayWaiting(_ refusal: WireError) {
        Output.write("groupstore: \(refusal.message); waiting", to: STDERR_FILENO)
    }

    private func openConnection() throws(AgentConnectionError) -> AgentConnection {
        if let connection { return connection }
        return try AgentConnection(feed.socket, interrupt: Interruption.descriptor)
    }

    /// Prints a page. Returns its lines, if it has rows.
    private func printPage(
        _ index: Int, _ connection: AgentConnection
    ) throws(AgentConnectionError) -> [JSONObject] {
        let position = positions[index]
        // A step tells what it changes of the schema.
        let schema = position.step == nil ? position.schema : nil
        let operation = HistoryOperation.changes(
            feed.address(index), since: position.token, limit: Self.pageLength, filter, .values(schema: schema))
        var parts = PartBuffer()
        var lines: [JSONObject] = []
        var problem: WireError?
        let reply = try connection.request(.history(operation), deadline: Deadline(after: Self.replyTimeout)) {
            do throws(WireError) {
                if let whole = try parts.object($1) { lines.append(whole) }
            } catch {
                problem = error
            }
        }
        if let problem { throw .notUnderstood(feed.socket, problem.message) }
        if !lines.contains(where: { $0.string("type") != "batch" }) { lines = [] }
        var printer = WatchedRowPrinter(feed.stores[index], output)
        for line in lines { printer.print(line) }
        positions[index].token = reply.string("token") ?? position.token
        positions[index].schema = reply.string("schema")
        positions[index].hasMore = reply.bool("more") ?? false
        return lines
    }
}

/// Prints the lines of a batch that an agent has sent.
private struct WatchedRowPrinter {
    private let store: WatchedStore
    private let output: Output
    private var columns: [JSONValue] = []

    init(_ store: WatchedStore, _ output: Output) {
        self.store = store
        self.output = output
    }

    mutating func print(_ line: JSONObject) {
        if line.string("type") == "table", case .array(let names)? = line["columns"] { columns = names }
        var object = JSONObject()
        for (key, value) in line.members where key != "id" {
            object[key] = value
            if key == "type" { object.setPath("store", bytes: store.bytes) }
        }
        guard !output.json else { return output.record(object, "") }
        if let words = words(line) { output.record(object, words) }
    }

    private func words(_ line: JSONObject) -> String? {
        let table = line.string("entity") ?? line.string("table") ?? ""
        switch line.string("type") {
        case "row"?:
            var words = [line.string("op") ?? "", table, line["key"]?.text ?? ""]
            if case .array(let values)? = line["values"] {
                words += zip(columns, values).map { name, value in
                    if case .string(let name) = name { "\(name)=\(value.text)" } else { value.text }
                }
            }
            return "  " + words.joined(separator: "  ")
        case "reset"?: return "  reset  \(line.string("reason") ?? "")"
        default: return nil
        }
    }
}
