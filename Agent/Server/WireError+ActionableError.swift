import AgentProtocol
import LinuxSystem

extension WireError {
    /// The answer to a request that fails with an error of the package. Every such error goes through here on its way
    /// to a client. A failed system call is the agent's, not the client's: its code is `system`, unless a disk is full.
    init(_ error: any ActionableError) {
        let isAgents = error is SystemError && error.errorCode != "no_space"
        self.init(code: isAgents ? "system" : error.errorCode, error.fullMessage, hint: error.remedy)
    }
}
