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
