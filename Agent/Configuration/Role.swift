import Glibc
import LinuxSystem

/// A kind of request that a user other than the agent's own may make. No role gives access to a file: the user needs
/// that by the file system's permissions (`Requester`).
package enum Role: String, Sendable, CaseIterable {
    /// Receive changes, and read histories and the status, of stores that the user may read.
    case subscribe
    /// Present stores, and claim them.
    case present
    /// Request the relocation of configured stores.
    case relocate
}

extension Configuration {
    /// Returns the user's roles; nil if the user may not even connect.
    ///
    /// The agent's own user and root have all roles: both could do everything without the agent.
    package func roles(of user: uid_t, agent: uid_t = geteuid()) -> Set<Role>? {
        user == agent || user == 0 ? Set(Role.allCases) : allowed[user]
    }
}
