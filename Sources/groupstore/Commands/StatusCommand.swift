import AgentProtocol
import ArgumentParser
import GroupContainers
import GroupStore
import LinuxSystem
import SystemPackage

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show the stores, their relocations, and their subscribers.",
        discussion: """
            Works without an agent for a group directory: shows its content and past relocations. Also shows conflicts, \
            refusals, and a configuration that the agent could not read; the exit code is that of the first one.
            """)

    @Argument(
        help: "A group container's directory; by default, everything that the agent serves.", completion: .directory)
    var groupDir: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let status = try groupDir.map { try show(ArgumentBytes.path($0), output) } ?? showAgent(output)
            if let problem = status?.problems.first { throw ExitCode(problem.exitCode) }
        }
    }

    private func showAgent(_ output: Output) throws -> AgentStatus? {
        do throws(AgentConnectionError) {
            let status = try AgentStatus(environment: ProcessVariables.all)
            show(status, output)
            return status
        } catch {
            switch error {
            case .noAgent, .noSocketPath, .lost:
                throw CommandFailure(
                    .noAgent, code: "no_agent", error.message,
                    remedy: "\(error.remedy); groupstore status GROUP_DIR works without an agent")
            default: throw error
            }
        }
    }

    private func show(_ status: AgentStatus, _ output: Output) {
        for row in status.rows { output.record(row.object, lines: row.lines) }
        var summary: JSONObject = ["type": "summary", "outcome": "served"]
        for member in status.summary.members where member.key != "id" && member.key != "ok" {
            summary[member.key] = member.value
        }
        summary["problems"] = .integer(Int64(status.problems.count))
        output.record(summary, lines: status.summaryLines)
    }

    private func show(_ directory: FilePath, _ output: Output) throws -> AgentStatus? {
        do {
            let path = directory.absolute(in: FilePath(workingDirectory()))
            let contents = try GroupDirectoryStatus(path)
            // Only an agent knows the subscribers; its absence isn't an error here.
            let agent = try? AgentStatus(environment: ProcessVariables.all, directory: path)
            for row in contents.rows { output.record(row.object, lines: row.lines) }
            for row in agent?.rows ?? [] where row.type != "group" { output.record(row.object, lines: row.lines) }
            var summary: JSONObject = ["type": "summary", "outcome": "read"]
            summary.setPath("directory", bytes: path.bytes)
            summary["stores"] = .integer(Int64(contents.storeCount))
            summary["interrupted"] = .bool(contents.isInterrupted)
            summary["agent"] = .bool(agent?.rows.isEmpty == false)
            guard let agent, !agent.rows.isEmpty else {
                output.record(summary, "no agent serves this directory")
                return nil
            }
            output.record(summary, lines: agent.summaryLines)
            return agent
        } catch let error as UnreadableRecord {
            throw CommandFailure(
                .badData, code: error.errorCode, error.message, remedy: "use the version that wrote it",
                underlying: error)
        }
    }
}

/// One object of the status.
struct StatusRow {
    let type: String
    let object: JSONObject
    let lines: [String]

    init(_ type: String, _ members: JSONObject, lines: String...) { self.init(type, members, lines: lines) }

    init(_ type: String, _ members: JSONObject, lines: [String]) {
        self.type = type
        self.lines = lines
        var object: JSONObject = ["type": .string(type)]
        for member in members.members where member.key != "type" && member.key != "id" {
            object[member.key] = member.value
        }
        self.object = object
    }
}

/// A persistent problem that the agent reports.
struct AgentProblem {
    /// The kind of check, a code for scripts.
    let check: String
    /// The path concerned; nil if the problem isn't about one path.
    let path: FilePath?
    /// The message, including a remedy.
    let message: String
    /// The exit code of a command with the same result.
    let exitCode: Int32
}

/// The status that an agent reports of itself.
struct AgentStatus {
    private(set) var rows: [StatusRow] = []
    let summary: JSONObject

    /// Requests the status. With a `directory`, only of the group that has it; there are no rows if none has.
    init(environment: [String: String], directory: FilePath? = nil) throws(AgentConnectionError) {
        try self.init(socket: AgentConnection.standardSocket(environment: environment), directory: directory)
    }

    /// Requests the status from the agent at that socket.
    init(socket: FilePath, directory: FilePath? = nil) throws(AgentConnectionError) {
        let connection = try AgentConnection(socket)
        let only = try directory.map { directory throws(AgentConnectionError) in
            try ServedGroups(connection).group(at: directory) ?? ""
        }
        var found: [StatusRow] = []
        summary = try connection.request(.status(group: only), deadline: Deadline(after: .seconds(10))) { type, row in
            found.append(StatusRow(type, row, lines: Self.lines(type, row)))
        }
        rows = found
    }

    /// The problems that need a person: stores in conflict, refused or failed relocations, and a configuration that
    /// can't be read.
    var problems: [AgentProblem] {
        let stores = rows.filter { $0.type == "legacy" }.compactMap { row -> AgentProblem? in
            guard let code = row.object.integer("exit") else { return nil }
            return AgentProblem(
                check: "relocation", path: row.object.path("path").flatMap { FilePath(bytes: $0) },
                message: row.object.string("detail") ?? row.object.string("state") ?? "",
                exitCode: Int32(clamping: code))
        }
        let reload = summary.object("reload_failed").map {
            AgentProblem(
                check: "reload", path: nil, message: Self.rejection($0),
                exitCode: ExitStatus.configuration.rawValue)
        }
        let files = summary.objects("configuration_problems").map { problem in
            AgentProblem(
                check: "agent_configuration", path: nil, message: Self.configurationProblem(problem),
                exitCode: ExitStatus.configuration.rawValue)
        }
        return stores + [reload].compactMap { $0 } + files
    }

    private static func configurationProblem(_ object: JSONObject) -> String {
        "\(object.string("message") ?? "") (\(object.string("hint") ?? ""))"
    }

    private static func rejection(_ object: JSONObject) -> String {
        "the agent keeps its old configuration since \(object.string("at") ?? "?"): \(object.string("message") ?? "") "
            + "(\(object.string("hint") ?? ""))"
    }

    var summaryLines: [String] {
        let socket = Self.printable("socket", summary)
        let reload = summary.object("reload_failed").map { [Self.rejection($0)] } ?? []
        let shown = summary.objects("configuration_problems").map(Self.configurationProblem)
        let others = Int(summary.integer("configuration_problem_count") ?? 0) - shown.count
        let more =
            others > 0 ? ["\(others) more files of the configuration have errors (groupstore agent --check)"] : []
        return reload + shown + more + [
            "agent \(summary.string("agent") ?? "?"), pid \(summary.integer("pid") ?? 0), socket \(socket), "
                + "\(summary.integer("subscribers") ?? 0) subscribers"
        ]
    }

    private static func lines(_ type: String, _ row: JSONObject) -> [String] {
        switch type {
        case "group":
            let missing = row.bool("exists") == false ? "  (not there yet)" : ""
            return ["\(row.string("group") ?? "")  \(printable("directory", row))\(missing)"]
        case "subscription":
            let behind = row.integer("behind") ?? 0
            let since = row.string("lagging_since").map { " since \($0)" } ?? ""
            let waiting = (row.integer("waiting_bytes") ?? 0) + (row.integer("unread_bytes") ?? 0)
            let holder = FileHolder(
                pid: Int32(clamping: row.integer("pid") ?? 0), program: row.string("program") ?? "?")
            return ["    subscriber \(holder)  \(behind) behind\(since), \(waiting) bytes waiting"]
        case "legacy":
            let detail = row.string("detail").map { ": \($0)" } ?? ""
            return ["    legacy \(printable("path", row))  \(row.string("state") ?? "")\(detail)"]
        default:
            let detail = row.string("detail").map { ": \($0)" } ?? ""
            let store =
                "  \(printable("store", row))  \(row.string("state") ?? "")\(detail)  "
                + "\(row.integer("subscribers") ?? 0) subscribers\(holders("presenters", of: row, prefix: ", presented by "))"
            let relocations = [row.object("relocation").map(state), row.object("last_relocation").map(Self.relocation)]
            return [store] + relocations.compactMap(\.self).map { "    \($0)" }
        }
    }

    /// Returns a relocation's current or last state in words.
    private static func state(of relocation: JSONObject) -> String {
        let words = [
            "\(relocation.string("state") ?? "") since \(relocation.string("since") ?? "")",
            relocation.string("outcome") ?? "", relocation.string("message") ?? "",
        ]
        return words.filter { !$0.isEmpty }.joined(separator: ": ")
            + holders("waiting_for", of: relocation, prefix: ", waiting for ")
    }

    private static func holders(_ key: String, of row: JSONObject, prefix words: String) -> String {
        guard case .array(let values)? = row[key], !values.isEmpty else { return "" }
        return words + row.objects(key).map(FileHolder.init).list
    }

    static func relocation(_ object: JSONObject) -> String {
        "relocated \(object.string("at") ?? "") from \(printable("from", object)) (\(object.string("method") ?? ""))"
    }

    static func printable(_ key: String, _ object: JSONObject) -> String {
        object.path(key).flatMap { FilePath(bytes: $0) }.map { PrintablePath($0).description } ?? ""
    }
}
