import AgentProtocol
import GroupStoreAgent
import SystemPackage

/// The findings of `doctor` in an agent's status.
extension AgentStatus {
    /// Returns the findings.
    ///
    /// - Parameter directories: Limits relocation problems to those of stores in these directories; nil for all.
    func findings(in directories: Set<FilePath>?) -> [Finding] {
        let relevant = problems.filter { problem in
            guard let directories, let path = problem.path else { return true }
            return directories.contains(path.removingLastComponent())
        }
        return rows.filter { $0.type == "store" }.compactMap(Self.notFollowed) + descriptors
            + relevant.map(Finding.init)
    }

    private static func notFollowed(_ row: StatusRow) -> Finding? {
        guard let state = row.object.string("state"), ["unwatched", "unreadable"].contains(state) else { return nil }
        let name = row.object.string("store") ?? "a store"
        let message = "\(name) is not followed (\(state)): \(row.object.string("detail") ?? "no reason is known")"
        return Finding(
            "feed", state == "unwatched" ? .problem(.configuration) : .warning, message,
            remedy: state == "unwatched" ? "the agent tries again by itself; kill -HUP makes it try now" : nil)
    }

    private var descriptors: [Finding] {
        guard let found = summary.object("descriptors"), let open = found.integer("open"),
            let limit = found.integer("limit"), limit > 0
        else { return [] }
        let message = "the agent has \(open) of \(limit) files open"
        guard open * 5 >= limit * 4 else { return [Finding("agent_descriptors", .fine, message)] }
        return [
            Finding("agent_descriptors", .warning, message, remedy: "raise LimitNOFILE= of its unit, or ulimit -Hn")
        ]
    }
}

extension Finding {
    /// Creates the finding for a problem of the agent.
    fileprivate init(_ problem: AgentProblem) {
        let cause: Cause =
            switch ExitStatus(rawValue: problem.exitCode) {
            case .conflict: .conflict
            case .badData: .badData
            case .notPermitted: .notPermitted
            case .configuration: .configuration
            default: .inputOutput
            }
        self.init(problem.check, .problem(cause), problem.message)
    }
}
