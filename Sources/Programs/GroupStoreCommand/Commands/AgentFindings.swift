import AgentProtocol
import CommandSupport
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
        let stuck = stuckSubscribers(after: ProblemLimits.standardStuckSubscriber).map {
            Finding("subscriber", .warning, $0.message)
        }
        let waiting = waiting(after: ProblemLimits.standardWaiting).filter { problem in
            directories.map { $0.contains(problem.path?.removingLastComponent() ?? "") } ?? true
        }
        return unfollowed.map(Self.notFollowed) + stuck
            + waiting.map { Finding("waiting", .warning, $0.line) } + descriptors
            + (relevant + unrecorded).map(Finding.init)
    }

    private static func notFollowed(_ problem: AgentProblem) -> Finding {
        let isUnwatched = problem.word == "unwatched"
        return Finding(
            "feed", isUnwatched ? .problem(.configuration) : .warning, problem.message,
            remedy: isUnwatched ? "the agent tries again by itself; kill -HUP makes it try now" : nil)
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
