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
