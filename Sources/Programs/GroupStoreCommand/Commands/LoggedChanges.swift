import AgentProtocol
import CommandSupport
import LinuxSystem
import RowShadow
import SystemPackage

/// Prints the rows after a token of `watch --direct`, from the log of the copy of a store's pages.
struct LoggedChanges {
    let options: BatchOptions
    let filter: HistoryFilterOptions
    let output: Output

    /// The number of rows after which a page without values ends.
    private static let standardLimit = 1000

    func print(_ argument: String, since token: RowToken) throws {
        let rows = try RowsPlace(argument)
        guard !filter.rows.wire.needsHistory, options.schema == nil else {
            throw CommandFailure(
                .usage, code: "no_history",
                "\(token) is a token of a store's pages, which know no entities and no authors, and need no --schema",
                remedy: "leave out --entities, --authors, --except-authors and --schema")
        }
        let logs = try rows.own.logs()
        guard let log = logs.first(where: { $0.epoch == token.epoch }) ?? logs.first else {
            throw CommandFailure(
                .inputOutput, code: "no_copy",
                "\(PrintablePath(rows.store)) has no copy of its pages: \(PrintablePath(rows.own.path))",
                remedy: "make one: groupstore rows enable \(rows.store.shellWord)")
        }
        let continuity = try log.epoch == token.epoch ? log.continuity(after: token.position) : .foreign
        if let reason = continuity.resetReason {
            let present = RowToken(epoch: log.epoch, try log.lastPosition())
            report(reason, present)
            if output.json { summarize("reset", 0, isLast: true, present) }
            return
        }
        try print(log, of: rows.store, after: token)
    }

    private func print(_ log: LoggedSteps, of store: FilePath, after token: RowToken) throws {
        let name = store.lastComponent?.string ?? ""
        let form = StepLines.Form(
            store: store.bytes, listsTables: options.isBatch, values: options.isBatch,
            operations: RowFilterOptions.names(filter.rows.operations),
            envelope: options.format == .debezium ? DebeziumEnvelope(database: name) : nil)
        let tables = RowFilterOptions.names(filter.tables).map { TableFilter(Array($0)) }
        var printer = StepPrinter(form, output, tables: tables)
        let limit = filter.limit ?? (options.isBatch ? Int.max : Self.standardLimit)
        var (position, count) = (token, 0)
        try log.forEach(after: token.position.step) { reader in
            if count >= limit { return false }
            let isKnown =
                try reader.step.kind != .gap && printer.print(reader, from: position.description) != nil
            position = RowToken(epoch: log.epoch, StepPosition(reader.step))
            if isKnown {
                Output.write(encoded: printer.rest[...])
                count += printer.rowCount
            } else {
                report(.historyGap, position)
            }
            return true
        }
        summarize("changes", count, isLast: position.position.step == log.lastStep, position)
    }

    /// A consumer of envelopes must not take the absence of lines for the absence of changes.
    private func report(_ reason: StoreEvent.ResetReason, _ token: RowToken) {
        let reset: JSONObject = [
            "type": "reset", "reason": .string(reason.rawValue), "token": .string(token.description),
        ]
        if options.format == .debezium, !output.json { return Output.write(json: reset) }
        output.record(reset, "reset  \(reason.rawValue)  \(token)")
    }

    private func summarize(_ outcome: String, _ count: Int, isLast: Bool, _ token: RowToken) {
        var summary: JSONObject = ["type": "summary", "outcome": .string(outcome)]
        if outcome == "changes" {
            summary["changes"] = .integer(Int64(count))
            summary["more"] = .bool(!isLast)
        }
        summary["token"] = .string(token.description)
        let line = "token \(token)" + (isLast ? "" : ", and more")
        if options.format == .debezium, !output.json, !output.quiet { return Output.write(line, to: 2) }
        output.record(summary, line)
    }
}
