import AgentProtocol
import CommandSupport
import GroupStoreAgent
import LinuxSystem
import PersistentHistory
import SQLiteStore

/// Reads a change batch and prints it.
struct BatchReading {
    let options: BatchOptions
    let filter: HistoryFilter
    /// The number of rows in a page, which also ends after about 4 MiB; nil for the whole batch.
    let limit: Int?
    /// True if the lines are for the wire.
    let wireLines: Bool
    let output: Output

    /// The rows that are in memory at once.
    private static let maxRows = 10_000
    /// The longest row that an agent sends.
    private static let maxWireRow = 8 << 20

    private enum Answer {
        case batch(SpooledOutput, BatchEnd)
        case reset(StoreHistory.Discontinuity, HistoryToken, schema: String)
    }

    private struct BatchEnd {
        var rows = 0
        var token: HistoryToken
        var isLast = false
        let schema: String
    }

    /// - Parameter position: Where to begin; nil for the start of the history.
    func print(_ store: String, held: HeldStoreOptions, since position: HistoryToken?, now: Bool) throws {
        let location = try held.location(store)
        // If the store's files changed meanwhile, the body runs again.
        let answer: Answer = try StoreReader.read(location) { reader in
            let batch = try ChangeBatch(reader)
            do {
                let start = try now ? batch.current() : position ?? batch.start()
                return try read(batch, after: start, path: location.name.database.string)
            } catch let reason as StoreHistory.Discontinuity {
                return .reset(reason, try batch.current(), schema: batch.schema)
            }
        }
        switch answer {
        case .batch(let lines, let end):
            try lines.print(Output.write(encoded:))
            summarize(end)
        case .reset(let reason, let token, let schema): report(reason, token, schema)
        }
    }

    private func read(_ batch: ChangeBatch, after start: HistoryToken, path: String) throws -> Answer {
        let lines = SpooledOutput()
        var printer = BatchPrinter(format: options.format, wireLines: wireLines, output: output, database: path)
        try lines.append(printer.opening(batch, from: start))
        var end = BatchEnd(token: start, schema: batch.schema)
        repeat {
            let page = try batch.page(
                after: end.token, knownSchema: options.schema, limit: min(limit ?? .max, Self.maxRows),
                maxRowBytes: wireLines ? Self.maxWireRow : .max, filter: filter)
            for row in page.rows { try lines.append(printer.lines(row, of: batch)) }
            end.rows += page.rows.count
            (end.token, end.isLast) = (page.token, page.isLast)
        } while !end.isLast && limit == nil
        return .batch(lines, end)
    }

    private func summarize(_ end: BatchEnd) {
        let token = end.token.description
        var summary: JSONObject = ["type": "summary", "outcome": "changes", "changes": .integer(Int64(end.rows))]
        summary["more"] = .bool(!end.isLast)
        summary["schema"] = .string(end.schema)
        summary["token"] = .string(token)
        if options.format == .debezium, !output.json, !output.quiet {
            return Output.write("token \(token)" + (end.isLast ? "" : ", and more"), to: 2)
        }
        output.record(summary, "token \(token)" + (end.isLast ? "" : ", and more"))
    }

    private func report(_ reason: StoreHistory.Discontinuity, _ token: HistoryToken, _ schema: String) {
        let reset: JSONObject = [
            "type": "reset", "reason": .string(reason.rawValue), "schema": .string(schema),
            "token": .string(token.description),
        ]
        if options.format == .debezium, !output.json {
            // A consumer of envelopes must not take the absence of lines for the absence of changes.
            Output.write(json: reset)
            return
        }
        output.record(reset, "reset  \(reason.rawValue)  \(token)")
        if output.json {
            output.record(["type": "summary", "outcome": "reset", "token": .string(token.description)], "")
        }
    }
}
