import AgentProtocol
import LinuxSystem

extension WireError {
    /// The answer to a request that fails with an error of the package. Every such error goes through here on its way
    /// to a client. A failed system call is the agent's, not the client's: its code is `system`.
    init(_ error: any ActionableError) {
        self.init(code: error is SystemError ? "system" : error.errorCode, error.fullMessage, hint: error.remedy)
    }
}
