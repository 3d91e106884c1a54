import AgentProtocol
import CommandSupport
import Glibc
import GroupStore
import LinuxSystem
import PersistentHistory
import SystemPackage

/// The rows of `watch --values`: after each change of a store, the change batch since the last one, from the agent.
final class WatchedBatches {
    private struct Position {
        /// The history's token; nil while it isn't known.
        var token: String?
        /// The schema of the last batch.
        var schema: String?
        /// True if a batch couldn't be read because the store is being relocated.
        var isPending = false
    }

    private let feed: AgentFeed
    private let filter: HistoryOperation.Filter
    private let output: Output
    private var positions: [Position]

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

    /// Prints the rows that an event stands for.
    func print(before event: FeedEvent) throws {
        guard let index = feed.stores.firstIndex(where: { $0 === event.store }) else { return }
        let reached = event.token.flatMap { SubscriptionToken($0)?.history }
        switch event.event {
        case .reset:
            // Everything is stale, so the rows until here don't matter.
            if let reached { positions[index] = Position(token: reached) }
        case .relocating, .progress: return
        case .change, .branchChange, .relocated, .migrated, .abandoned, .hazard, .hazardOver, nil:
            guard event.tables != nil || positions[index].isPending else { return }
            guard positions[index].token != nil else {
                positions[index].token = reached
                return
            }
            try printBatch(index)
        }
    }

    private func printBatch(_ index: Int) throws {
        let giveUp = Deadline(after: Self.patience)
        var hasSaid = output.quiet
        var backoff = Backoff(first: .milliseconds(20), longest: .seconds(2))
        while true {
            do throws(AgentConnectionError) {
                while try printPage(index) {}
                positions[index].isPending = false
                return
            } catch {
                switch error {
                case .refused(let refusal) where refusal.code == "relocating":
                    positions[index].isPending = true
                    return
                case .refused(let refusal) where refusal.code == "busy":
                    // A program may lock a store for as long as it likes.
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

    /// Prints a page. Returns true if another one follows.
    private func printPage(_ index: Int) throws(AgentConnectionError) -> Bool {
        let position = positions[index]
        let operation = HistoryOperation.changes(
            feed.address(index), since: position.token, limit: Self.pageLength, filter, .values(schema: position.schema)
        )
        var parts = PartBuffer()
        var lines: [JSONObject] = []
        var problem: WireError?
        let connection = try AgentConnection(feed.socket, interrupt: Interruption.descriptor)
        let reply = try connection.request(.history(operation), deadline: Deadline(after: Self.replyTimeout)) {
            do throws(WireError) {
                if let whole = try parts.object($1) { lines.append(whole) }
            } catch {
                problem = error
            }
        }
        if let problem { throw .notUnderstood(feed.socket, problem.message) }
        let rows = lines.contains { $0.string("type") != "batch" }
        var printer = WatchedRowPrinter(feed.stores[index], output)
        if rows { for line in lines { printer.print(line) } }
        positions[index].token = reply.string("token") ?? position.token
        positions[index].schema = reply.string("schema")
        return reply.bool("more") ?? false
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
