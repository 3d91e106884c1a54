import ArgumentParser

/// The program's exit codes, those of sysexits(3) that mean the same.
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

/// Why a command ends without having done what it was asked: one line, and one that says what would help.
struct CommandFailure: Error {
    let status: ExitStatus
    /// A word that scripts can rely on, such as `no_agent`.
    let code: String
    let message: String
    /// More of the message, a line each.
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
