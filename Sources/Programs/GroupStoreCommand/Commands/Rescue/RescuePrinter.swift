import AgentProtocol
import CommandSupport
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import StoreRelocation
import StoreRescue
import SystemPackage

/// Prints what a rescue found and did.
struct RescuePrinter {
    private let output: Output
    private let store: StoreLocation
    private let dryRun: Bool

    init(_ output: Output, _ store: StoreLocation, dryRun: Bool) {
        (self.output, self.store, self.dryRun) = (output, store, dryRun)
    }

    func print(_ report: RescueReport) {
        for branch in report.branches { output.record(record(branch), lines: lines(branch)) }
        if output.json { for note in report.notes { output.record(["type": "note", "text": .string(note)], "") } }
        output.record(summary(report), lines: (output.json ? [] : report.notes) + sentences(report))
    }

    /// Prints what is kept of branches after a failure, whose message names it for people.
    func printKept(_ branches: [RescueReport.Branch]) {
        guard output.json else { return }
        for branch in branches { output.record(record(branch), "") }
    }

    private func record(_ branch: RescueReport.Branch) -> JSONObject {
        var object: JSONObject = [
            "type": "branch", "code": .string(branch.code), "joined": .bool(branch.isJoined),
        ]
        if let holder = branch.holders.first {
            object["pid"] = .integer(Int64(holder.pid))
            object["program"] = .string(holder.program)
            // Neither is read of a copy that is kept after a failure.
            if branch.lastWrite > 0 {
                object["commits"] = .integer(Int64(branch.commits))
                object["last_write"] = WireTime.text(Double(branch.lastWrite) / 1e9).map { .string($0) }
            }
        }
        let others = branch.holders.dropFirst().map { JSONValue.integer(Int64($0.pid)) }
        if !others.isEmpty { object["other_pids"] = .array(Array(others)) }
        if let archive = branch.archive { object.setPath("archive", bytes: archive.bytes) }
        if let copy = branch.copy { object.setPath("copy", bytes: copy.bytes) }
        if let damage = branch.damage { object["damage"] = .string(damage) }
        object["tables"] = .array((branch.changes?.tables ?? []).filter { !$0.isSame }.map { .object(table($0)) })
        return object
    }

    private func table(_ table: ContentChanges.Table) -> JSONObject {
        var object: JSONObject = [
            "table": .string(table.name), "store": .integer(table.before), "branch": .integer(table.after),
        ]
        if let obstacle = table.obstacle {
            object["obstacle"] = .string(obstacle)
        } else {
            object["only_branch"] = .integer(table.came)
            object["only_store"] = .integer(table.went)
            object["changed"] = .integer(table.changed)
        }
        return object
    }

    private func lines(_ branch: RescueReport.Branch) -> [String] {
        let count = branch.commits == 1 ? "1 commit" : "\(branch.commits) commits"
        let time = WireTime.text(Double(branch.lastWrite) / 1e9).map { ", the last at \(LocalTime($0))" } ?? ""
        let head =
            branch.holders.isEmpty
            ? "\(branch.subject), which has closed its files: saved by an earlier rescue, not joined yet"
            : "\(branch.subject): \(branch.code), \(count) in its log\(time)"
        if let copy = branch.copy { return [head + "; copied to \(PrintablePath(copy))"] }
        if branch.changes == nil, branch.holders.isEmpty, let archive = branch.archive {
            return [head + "; kept in \(PrintablePath(archive))"]
        }
        if branch.isJoined { return [head + "; joined before, nothing since"] }
        let tables = (branch.changes?.tables ?? []).filter { !$0.isSame }.map { table in
            if let obstacle = table.obstacle {
                return "  \(PrintableText(table.name)): the branch \(obstacle); \(table.before) rows in the store"
            }
            return "  \(PrintableText(table.name)): \(table.came) rows only in the branch, \(table.went) only in the "
                + "store, \(table.changed) different"
        }
        return [head] + tables
    }

    private func summary(_ report: RescueReport) -> JSONObject {
        var object: JSONObject = ["type": "summary", "outcome": .string(report.outcome.rawValue)]
        if dryRun { object["dry_run"] = true }
        object.setPath("store", bytes: store.path.bytes)
        object["branches"] = .integer(Int64(report.branches.count))
        if let merge = report.merge {
            var sums: JSONObject = [
                "only_store": .integer(merge.sum(\.onlyGroup)), "only_branch": .integer(merge.sum(\.onlyLegacy)),
                "equal": .integer(merge.sum(\.equal)), "different": .integer(merge.sum(\.different)),
                "takes_store": .integer(merge.sum(\.takesGroup)), "takes_branch": .integer(merge.sum(\.takesLegacy)),
            ]
            if !merge.base.isEmpty {
                sums["deleted"] = .integer(merge.deletedByOneSide)
                sums["changed"] = .integer(merge.changedByOneSide)
            }
            object["merge"] = .object(sums)
        }
        if let archive = report.archive { object.setPath("archive", bytes: archive.bytes) }
        object["remaining"] = .array(report.remaining.map { .integer(Int64($0.holder.pid)) })
        if let hint = hint(report) { object["hint"] = .string(hint) }
        return object
    }

    private func hint(_ report: RescueReport) -> String? {
        let holders = report.remaining.map(\.holder)
        guard !holders.isEmpty else { return nil }
        return "restart \(holders.list): until it opens \(PrintablePath(store.path)) again, nobody else sees what it "
            + "commits"
    }

    private func sentences(_ report: RescueReport) -> [String] {
        guard !report.branches.isEmpty else {
            let path = PrintablePath(store.path)
            return ["nothing to rescue: no process that can be seen has a lost file of \(path) open"]
        }
        let merged =
            report.merge.map { merge in
                let (deleted, changed) = (merge.deletedByOneSide, merge.changedByOneSide)
                let alone = !merge.base.isEmpty ? "\(deleted) rows deleted, \(changed) changed by one side" : nil
                return (alone.map { ", \($0)" } ?? "") + ", \(merge.sum(\.onlyLegacy)) rows added"
                    + ", \(merge.sum(\.different)) different"
            } ?? ""
        if report.outcome == .copied {
            return ["nothing is joined yet: run groupstore rescue \(store.path.shellWord)"]
        }
        guard report.outcome == .rescued else {
            return ["nothing to rescue: joined before, nothing since"] + (hint(report).map { [$0] } ?? [])
        }
        let verb = dryRun ? "would join" : "joined"
        let head = "\(verb) \(report.branches.count) branch\(report.branches.count == 1 ? "" : "es")\(merged)"
        return [head] + (hint(report).map { [$0] } ?? [])
    }
}
