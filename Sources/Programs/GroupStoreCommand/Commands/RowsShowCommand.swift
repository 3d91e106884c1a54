import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import RowShadow
import SystemPackage

struct RowsShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Show the copies of stores' pages, and what the logs of their rows keep.",
        discussion: """
            Each program that follows the store by itself has a copy of its own, and so has an agent with 'rows: true'. \
            The copy differs from the store after \
            changes that nobody was told of yet. The values of deleted rows stay in the log until it has grown by 256 \
            MiB, or until 'groupstore rows disable'.

            Without STORE, lists the stores that have copies, this user's and those in the groups' directories. A store \
            that was removed or moved away leaves its copies; nothing removes them but 'groupstore rows disable'.

            Example:
              groupstore rows show Notes.sqlite
              groupstore rows show
            """)

    @Argument(help: "The store's database file. It may be gone.", completion: .stores)
    var store: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            guard let store else { return try CopiesOfStores().print(output) }
            let rows = try RowsPlace(store)
            let place = rows.own
            let own = try place.reports(of: rows.store)
            for report in own { describe(report, of: rows.store, output) }
            let agents = try rows.agents(for: "show")?.reports(of: rows.store) ?? []
            for report in agents { describe(report, of: rows.store, output) }
            let reports = own + agents
            var summary: JSONObject = ["type": "summary", "outcome": "shown", "copies": .integer(Int64(reports.count))]
            summary["bytes"] = .integer(reports.reduce(0) { $0 + $1.size })
            summary["log_bytes"] = .integer(reports.reduce(0) { $0 + $1.logSize })
            summary["deleted_rows"] = .integer(Int64(clamping: reports.reduce(0) { $0 + $1.log.deletedRows }))
            summary.setPath("path", bytes: place.path.bytes)
            output.record(
                summary,
                lines: reports.isEmpty ? ["no copy in \(PrintablePath(place.path)): 'watch --values' makes one"] : [])
        }
    }

    private func describe(_ report: ShadowReport, of store: FilePath, _ output: Output) {
        let log = report.log
        var object: JSONObject = ["type": "copy"]
        object.setPath("path", bytes: report.path.bytes)
        object["bytes"] = .integer(report.size)
        object["log_bytes"] = .integer(report.logSize)
        object["usable"] = .bool(report.epoch != nil)
        object["token"] =
            report.epoch.map {
                let last = log.last.map { StepPosition($0) } ?? StepPosition(step: 0, fingerprint: nil)
                return .string(RowToken(epoch: $0, last).description)
            } ?? .null
        object["steps"] = .integer(Int64(clamping: log.steps))
        object["rows"] = .integer(Int64(clamping: log.rows))
        object["deleted_rows"] = .integer(Int64(clamping: log.deletedRows))
        object["first"] = log.first.map { .time($0.time) } ?? .null
        object["last"] = log.last.map { .time($0.time) } ?? .null
        switch report.agreement {
        case .agrees: (object["current"], object["differing_pages"]) = (true, 0)
        case .differs(let pages): (object["current"], object["differing_pages"]) = (false, .integer(Int64(pages)))
        case .unknown: object["current"] = .null
        }
        object["followed"] = .bool(report.isUsed)
        let user = report.user.map { $0.split(separator: " ", maxSplits: 1).map(String.init) }
        if let user, user.count == 2, let pid = Int64(user[0]) {
            object["follower"] = .object(["pid": .integer(pid), "program": .string(user[1])])
        }
        output.record(object, lines: lines(report, of: store, user))
    }

    private func lines(_ report: ShadowReport, of store: FilePath, _ user: [String]?) -> [String] {
        let log = report.log
        var table = TextTable()
        table.add(.text("copy"), .text("\(PrintablePath(report.path)) (\(ByteCount(report.size)))"))
        var words = "\(ByteCount(report.logSize)), \(Counted(Int64(clamping: log.steps), "step"))"
        if let first = log.first, let last = log.last {
            words += " from \(LocalTime(first.time, precise: true)) to \(LocalTime(last.time, precise: true))"
        }
        table.add(.text("log"), .text(words))
        table.add(.text("rows"), .text("\(log.rows) changed; the values of \(log.deletedRows) deleted ones are kept"))
        let state =
            switch report.agreement {
            case .agrees: "the copy has the store's present state"
            case .differs(let pages): "\(Counted(Int64(pages), "page")) of the store were written since"
            case .unknown where report.epoch == nil && report.isUsed: "the copy is being made"
            case .unknown where report.epoch == nil:
                "the copy isn't usable: its program ended before it was whole. The next 'watch --values', 'rows enable' or "
                    + "'rows disable' of the store removes it"
            case .unknown where FileStatus(following: store) == nil: "the store is gone"
            case .unknown: "the store can't be read now"
            }
        table.add(.text("state"), .text(state))
        let follower = user.flatMap { $0.count == 2 ? "\($0[1]) (pid \($0[0]))" : nil } ?? "a program"
        table.add(.text("follower"), .text(report.isUsed ? follower : "none"))
        return table.lines()
    }
}
