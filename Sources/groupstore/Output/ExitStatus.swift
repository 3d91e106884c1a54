import ArgumentParser

/// The program's exit codes; those of sysexits(3) have the same meaning there.
enum ExitStatus: Int32 {
    case done = 0
    case usage = 64
    case badData = 65
    case noAgent = 69
    case conflict = 73
    case inputOutput = 74
    case busy = 75
    case notPermitted = 77
    case configuration = 78
    case interrupted = 130

    var code: ExitCode { ExitCode(rawValue) }
}

/// The error with which a command ends: a message, and a remedy.
struct CommandFailure: Error {
    let status: ExitStatus
    /// A code that scripts can rely on, such as `no_agent`.
    let code: String
    let message: String
    /// Additional lines of the message.
    let reasons: [String]
    let remedy: String?

    init(_ status: ExitStatus, code: String, _ message: String, reasons: [String] = [], remedy: String? = nil) {
        self.status = status
        self.code = code
        self.message = message
        self.reasons = reasons
        self.remedy = remedy
    }
}
