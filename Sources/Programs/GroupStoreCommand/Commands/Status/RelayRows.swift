import CommandSupport
import LinuxSystem
import RelayStatus
import SystemPackage

/// The `groupstore-relay` programs of this user, and the system's, from their records.
struct RelayRows: Sendable {
    let records: [RelayRecord]

    init(_ records: [RelayRecord]) { self.records = records }

    /// Reads the records of all stores, or of those that the target names.
    init(of target: StatusTarget?) {
        records = RelayRecord.all(environment: ProcessVariables.all).filter { record in
            guard let target else { return true }
            guard let directory = target.directory, record.store.path.removingLastComponent() == directory else {
                return false
            }
            return target.store == nil || record.store.path.lastComponent == target.store
        }
    }

    var rows: [StatusRow] { records.map { StatusRow("relay", $0.object, lines: $0.lines) } }

    /// The relays that ended with an error, or are behind for at least that many seconds.
    func problems(stuckAfter limit: Double) -> [AgentProblem] {
        records.compactMap { record in
            if record.reportedState == "ended" || record.failure?.code == record.state {
                let isConflict = ["superseded", "diverged"].contains(record.state)
                return problem(
                    record, record.reportedState, code: record.failure?.code,
                    record.failure?.message ?? "it was killed",
                    exitCode: isConflict ? .conflict : .inputOutput)
            }
            guard let seconds = record.lagSeconds, seconds >= limit, let lag = record.lag, lag > 0 else { return nil }
            return problem(
                record, "behind", code: record.failure?.code,
                "\(Counted(lag, "change")) behind for \(Int(seconds)) s\(record.failure.map { ": \($0.message)" } ?? "")",
                exitCode: .busy)
        }
    }

    private func problem(
        _ record: RelayRecord, _ word: String, code: String?, _ message: String, exitCode: ExitStatus
    ) -> AgentProblem {
        let who = record.follower.map { "\(record.stream) as \($0)" } ?? record.stream
        return AgentProblem(
            check: "relay", path: record.store.path, word: word, code: code, message: "relay \(who): \(message)",
            exitCode: exitCode.rawValue)
    }

    /// Adds the metrics.
    func add(to text: inout OpenMetricsText) {
        func add(
            _ name: String, _ kind: OpenMetricsText.Kind, unit: String? = nil, help: String,
            _ value: (RelayRecord) -> OpenMetricsText.Value?
        ) {
            text.add(
                "groupstore_relay_\(name)", kind, unit: unit, help: help,
                records.compactMap { record in
                    value(record).map { value in
                        .init(
                            value,
                            [
                                "store": OpenMetricsText.label(record.store.path.bytes), "stream": record.stream,
                                "role": record.role.rawValue, "follower": record.follower ?? "",
                            ])
                    }
                })
        }
        add("up", .gauge, help: "1 if the relay or follower runs, else 0.") { .integer($0.isRunning ? 1 : 0) }
        add("connected", .gauge, help: "1 if it is connected to a broker, else 0.") {
            .integer($0.isRunning && $0.server != nil ? 1 : 0)
        }
        add("lag_changes", .gauge, help: "The changes that it knows of and has not published or applied.") {
            $0.knownLag.map { .integer($0) }
        }
        add(
            "lag_seconds", .gauge, unit: "seconds", help: "The time since which it has had such changes."
        ) { $0.lagSeconds.map { .number($0) } }
        add("batches", .counter, help: "The batches published or applied.") { .integer($0.batches) }
        add("messages", .counter, help: "The messages published or received.") { .integer($0.messages) }
        add("snapshots", .counter, help: "The snapshots made or taken.") { .integer($0.snapshots) }
        add("rejected", .counter, help: "The messages left out because they are forged or malformed.") {
            .integer($0.rejected)
        }
    }
}
