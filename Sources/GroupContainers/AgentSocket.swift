import SystemPackage

/// The path of the agent's socket: `$GROUPSTORE_SOCKET`, else `groupstore/agent.sock` under `$XDG_RUNTIME_DIR`.
package enum AgentSocket {
    /// Returns the socket's path, or nil if neither variable holds an absolute path.
    package static func path(environment: [String: String]) -> FilePath? {
        func absolute(_ variable: String) -> FilePath? {
            environment[variable].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil }
        }
        return absolute("GROUPSTORE_SOCKET")
            ?? absolute("XDG_RUNTIME_DIR").map { $0.appending("groupstore").appending("agent.sock") }
    }
}
