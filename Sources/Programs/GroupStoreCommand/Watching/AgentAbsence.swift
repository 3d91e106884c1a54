import CommandSupport
import Glibc
import GroupStore
import LinuxSystem
import SystemPackage

/// What a watch does while its agent is away: it says so, waits for the agent, and then follows the stores by itself.
struct AgentAbsence {
    /// The time for an agent to return in, if the stores can be followed without it. A restarted one knows what has
    /// happened since.
    private static let restartTime = Duration.seconds(10)
    /// The longest wait if they can't.
    private static let longestWait = Duration.seconds(30)

    /// True if nothing is said.
    let isQuiet: Bool
    /// Follows the stores without an agent; nil if only an agent can do what was asked for.
    let follow: (([WatchedStore]) throws -> any WatchedFeed)?

    /// True if the stores can be followed from here. An agent's path may lead nowhere in another mount namespace, or
    /// not be for this user.
    func mayFollow(_ stores: [WatchedStore]) -> Bool {
        follow != nil
            && stores.allSatisfy { store in
                store.path.withPlatformString { faccessat(AT_FDCWD, $0, R_OK, AT_EACCESS) } == 0
            }
    }

    /// Returns the time to wait for the agent.
    func wait(for stores: [WatchedStore]) -> Duration { mayFollow(stores) ? Self.restartTime : Self.longestWait }

    /// Returns a feed of this process's own after a wait that has ended with the error; nil if there is none. Its first
    /// events tell that changes may have been missed.
    func feed(of stores: [WatchedStore], after error: AgentConnectionError) throws -> (any WatchedFeed)? {
        guard let follow, error.leavesFilesToWatch || error.isOfAbsence, mayFollow(stores) else { return nil }
        let feed = try follow(stores)
        say("watching \(stores.map { "\(PrintablePath($0.path))" }.joined(separator: ", ")) without the agent")
        return feed
    }

    /// - Parameter stores: The stores that the agent has served; nil if it didn't come to that.
    func sayGone(_ socket: FilePath, _ stores: [WatchedStore]?) {
        let seconds = wait(for: stores ?? []).components.seconds
        var text = "the agent at \(PrintablePath(socket)) is gone; waiting \(seconds) s for it"
        if let stores {
            text += mayFollow(stores) ? ", then watching without it" : ", then ending (start it: groupstore agent)"
        }
        say(text)
    }

    func sayBack() { say("the agent is back") }

    private func say(_ text: String) {
        if !isQuiet { Output.write("groupstore: \(text)", to: STDERR_FILENO) }
    }
}

extension AgentConnectionError {
    /// True if no agent serves the store.
    var leavesFilesToWatch: Bool {
        switch self {
        case .noSocketPath, .noAgent: true
        case .refused(let refusal): ["not_served", "unknown_store"].contains(refusal.code)
        case .lost, .timedOut, .notUnderstood, .tooLong, .interrupted: false
        }
    }

    /// True if no agent answers.
    var isOfAbsence: Bool {
        switch self {
        case .noAgent, .lost, .timedOut: true
        case .noSocketPath, .refused, .notUnderstood, .tooLong, .interrupted: false
        }
    }
}
