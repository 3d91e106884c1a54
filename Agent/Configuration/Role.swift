import Glibc
import LinuxSystem

/// What a user other than the agent's own may ask for. None of them gives a right to a file: whatever is asked for, its user
/// must have that by the file system's permissions (`Requester`).
package enum Role: String, Sendable, CaseIterable {
    /// Hear of changes, read histories and the status, of stores that the user may read.
    case subscribe
    /// Present stores, and claim them.
    case present
    /// Have configured stores relocated.
    case relocate
}

extension Configuration {
    /// What the user may ask for; nil: nothing, not even to connect.
    ///
    /// The agent's own user may ask for everything, and so may root: both could do all of it without the agent.
    package func roles(of user: uid_t, agent: uid_t = geteuid()) -> Set<Role>? {
        user == agent || user == 0 ? Set(Role.allCases) : allowed[user]
    }
}
