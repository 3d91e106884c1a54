import AgentProtocol
import CommandSupport
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The status of everything, of one group or of one store: from the agent if there is one, and from the group's
/// directory if one is named.
struct StatusReading {
    /// What was asked for; nil for everything that the agent serves.
    let target: StatusTarget?
    /// The group's directory by itself; nil if no group is named, or it isn't visible from here.
    let directory: GroupDirectoryStatus?
    /// The agent's status; nil if no agent serves the group.
    let agent: AgentStatus?
    /// The relays of these stores.
    let relays: RelayRows

    /// Reads the status. Throws `AgentConnectionError`, `CommandFailure` and the errors of reading a directory.
    init(of text: String?) throws {
        let (connection, failure) = Self.connect()
        guard let text else {
            guard let connection else { throw failure.map(Self.explained) ?? CommandFailure.noAgent }
            target = nil
            directory = nil
            relays = RelayRows(of: nil)
            do throws(AgentConnectionError) {
                agent = try AgentStatus(connection, StatusOperation()).addingIdleStores()
            } catch {
                throw Self.explained(error)
            }
            return
        }
        // Only an agent knows the subscribers; its absence isn't an error here.
        let target = try StatusTarget(text, served: connection.flatMap { try? ServedGroups($0) })
        let asked = connection.flatMap { connection in
            target.operation.flatMap { try? AgentStatus(connection, $0) }
        }
        self.target = target
        relays = RelayRows(of: target)
        agent = asked.flatMap { $0.rows.isEmpty ? nil : $0 }
        do {
            directory = try target.directory.map { try GroupDirectoryStatus($0, only: target.store) }
        } catch let error as UnreadableRecord {
            throw CommandFailure(
                .badData, code: error.errorCode, error.message, remedy: "use the version that wrote it",
                underlying: error)
        }
        guard target.store == nil || directory?.storeCount == 1 || agent?.hasStore == true else {
            throw CommandFailure(
                .inputOutput, code: "not_found", "there is no store \(target.name)",
                remedy: "see the group's stores: groupstore status \(target.container)")
        }
    }

    private static func connect() -> (AgentConnection?, AgentConnectionError?) {
        do throws(AgentConnectionError) {
            return (try AgentConnection(AgentConnection.standardSocket(environment: ProcessVariables.all)), nil)
        } catch {
            return (nil, error)
        }
    }

    /// Returns the error with which a command ends that needs an agent.
    static func explained(_ error: AgentConnectionError) -> CommandFailure {
        switch error {
        case .noAgent, .noSocketPath, .lost:
            CommandFailure(
                .unavailable, code: "no_agent", error.message,
                remedy: "\(error.remedy); without an agent, name a group: groupstore group list")
        default: CommandFailure(error)
        }
    }

    /// The agent's rows. Beside a directory's own rows, the group isn't named again, nor is a receipt printed again.
    private var agentRows: [StatusRow] {
        guard let directory else { return agent?.rows ?? [] }
        let printed = Set(directory.rows.flatMap(\.lines))
        return (agent?.rows ?? []).filter { $0.type != "group" }.map { row in
            var row = row
            row.lines.removeAll(where: printed.contains)
            return row
        }
    }

    var rows: [StatusRow] { (directory?.rows ?? []) + agentRows + unfinishedApps + damagedBranches + relays.rows }

    /// The interrupted moves of directories into the agent's groups, and what they have left stopped, which a
    /// directory's own status has, too.
    private var unfinishedApps: [StatusRow] {
        directory == nil ? groups.flatMap(GroupDirectoryStatus.unfinishedApps) : []
    }

    /// The damaged branches in the directories of the agent's groups. A directory's own status has those there.
    private var damagedBranches: [StatusRow] {
        directory == nil ? groups.flatMap { GroupDirectoryStatus.damagedBranches(in: $0) } : []
    }

    /// The directories of the agent's groups.
    private var groups: [FilePath] {
        (agent?.rows ?? []).filter { $0.type == "group" }.compactMap { $0.object.path("directory") }
            .compactMap { FilePath(bytes: $0) }
    }

    var summary: JSONObject {
        guard let target else {
            var summary: JSONObject = ["type": "summary", "outcome": "served"]
            for member in agent?.summary.members ?? [] { summary[member.key] = member.value }
            summary["problems"] = .integer(Int64(agent?.problems.count ?? 0))
            return summary
        }
        var summary: JSONObject = ["type": "summary", "outcome": "read"]
        summary["group"] = target.group.map { .string($0) }
        if let directory = target.directory { summary.setPath("directory", bytes: directory.bytes) }
        if let store = target.store { summary.setPath("store", bytes: store.bytes) }
        summary["stores"] = .integer(Int64(directory?.storeCount ?? 0))
        summary["interrupted"] = .bool(directory?.isInterrupted ?? false)
        summary["agent"] = .bool(agent != nil)
        return summary
    }

    var summaryLines: [String] { agent?.summaryLines ?? ["no agent serves this directory"] }

    /// The problems that `--check` reports. Without an agent, an interrupted relocation waits for somebody; an agent
    /// finishes it by itself.
    func problems(_ limits: ProblemLimits) -> [AgentProblem] {
        let behind = relays.problems(stuckAfter: limits.stuckSubscriber)
        if let agent {
            let problems = agent.allProblems(limits)
            // An agent doesn't look at the stores that nobody follows.
            let unfollowed = hazards.filter { hazard in !problems.contains { $0.message == hazard.message } }
            return unfollowed + brokenApps + problems + behind
        }
        let hazards = self.hazards + brokenApps
        guard directory?.isInterrupted == true, brokenApps.isEmpty, let target else { return hazards + behind }
        return hazards + [
            AgentProblem(
                check: "interrupted", path: target.directory, word: "interrupted",
                message: "a relocation is under way or was interrupted (finish or undo it: "
                    + "groupstore recover \(target.container))",
                exitCode: ExitStatus.busy.rawValue)
        ] + behind
    }

    /// The directories that an interrupted move has left at neither place, and the programs that one has left stopped.
    /// An agent ends the move, and starts the programs, when it starts.
    private var brokenApps: [AgentProblem] {
        guard target?.store == nil else { return [] }
        return (target?.directory.map { [$0] } ?? groups).map(AppDiagnosis.init).flatMap { diagnosis in
            func problem(_ path: FilePath, _ sentence: String, _ remedy: String) -> AgentProblem {
                AgentProblem(
                    check: "interrupted", path: path, word: "interrupted", message: "\(sentence) (\(remedy))",
                    exitCode: ExitStatus.badData.rawValue)
            }
            return [
                diagnosis.hidden.map { problem($0.source, AppDiagnosis.sentence($0), diagnosis.remedy) },
                diagnosis.stopped.map { problem($0.source.path, AppDiagnosis.sentence($0), diagnosis.startRemedy) },
            ].compactMap { $0 }
        }
    }

    /// The hazards to the stores in the groups' directories, as far as this process may look.
    private var hazards: [AgentProblem] {
        let directories = target?.directory.map { [$0] } ?? groups
        let only = target?.store.flatMap { StoreName($0) }
        let link = target?.link.map { HazardDiagnosis($0.directory.path, only: $0.name).findings() } ?? []
        return (directories.flatMap { HazardDiagnosis($0, only: only).findings() } + link).map { finding in
            AgentProblem(
                check: "hazard", word: "hazard", code: finding.code,
                message: finding.remedy.map { "\(finding.message) (\($0))" } ?? finding.message,
                exitCode: ExitStatus.badData.rawValue)
        }
    }
}

extension CommandFailure {
    fileprivate static let noAgent = CommandFailure(
        .unavailable, code: "no_agent", "no agent answers", remedy: "start one: groupstore agent")
}

extension AgentStatus {
    fileprivate var hasStore: Bool { rows.contains { $0.type == "store" } }
}
