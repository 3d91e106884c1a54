import Glibc
import LinuxSystem
import SystemPackage

/// The path of the agent's socket: `$GROUPSTORE_SOCKET`, else `groupstore/agent.sock` under `$XDG_RUNTIME_DIR`, else
/// under `/run/user/UID` if the user has that directory.
package enum AgentSocket {
    /// Returns the socket's path, or nil if neither variable holds an absolute path and there is no directory.
    ///
    /// A program that no login session started, such as one of cron or `su`, has no `$XDG_RUNTIME_DIR`.
    ///
    /// - Parameter runtimeDirectories: The directory with a directory for each user.
    package static func path(
        environment: [String: String], runtimeDirectories: FilePath = "/run/user"
    ) -> FilePath? {
        func absolute(_ variable: String) -> FilePath? {
            environment[variable].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil }
        }
        if let socket = absolute("GROUPSTORE_SOCKET") { return socket }
        let directory = absolute("XDG_RUNTIME_DIR") ?? ownDirectory(in: runtimeDirectories)
        return directory?.appending("groupstore").appending("agent.sock")
    }

    /// The socket of the system's agent, as its unit names it.
    package static let system: FilePath = "/run/groupstore/agent.sock"

    /// Returns the path at which a client finds its agent. Root, which administers the system's agent, finds that one
    /// if it runs none of its own and the environment names none.
    package static func clientPath(
        environment: [String: String], runtimeDirectories: FilePath = "/run/user", system: FilePath = Self.system,
        user: uid_t = geteuid()
    ) -> FilePath? {
        let own = path(environment: environment, runtimeDirectories: runtimeDirectories)
        guard user == 0, environment["GROUPSTORE_SOCKET"]?.hasPrefix("/") != true,
            own.flatMap({ FileStatus(following: $0) }) == nil, FileStatus(following: system) != nil
        else { return own }
        return system
    }

    /// Returns the user's runtime directory, which must be a directory of this user, not a link to one: anybody else's
    /// could hold a false agent.
    private static func ownDirectory(in parent: FilePath) -> FilePath? {
        let directory = parent.appending("\(geteuid())")
        var found = stat()
        guard directory.withPlatformString({ lstat($0, &found) }) == 0 else { return nil }
        let status = FileStatus(found)
        return status.kind == .directory && status.owner == geteuid() ? directory : nil
    }
}
