import ArgumentParser
import LinuxSystem
import SQLiteStore

/// The programs' exit codes; those of sysexits(3) have the same meaning there.
package enum ExitStatus: Int32 {
    case done = 0
    case usage = 64
    case badData = 65
    /// No agent answers, or a broker can't serve.
    case unavailable = 69
    case conflict = 73
    case inputOutput = 74
    case busy = 75
    case notPermitted = 77
    case configuration = 78
    case interrupted = 130

    package var code: ExitCode { ExitCode(rawValue) }

    package init(_ error: StoreError) {
        self =
            switch error {
            case .missing: .inputOutput
            case .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .corrupt, .superJournalElsewhere: .badData
            case .busy: .busy
            case .sqlite: error.isPermission ? .notPermitted : .inputOutput
            }
    }

    package init(_ error: SystemError) { self = error.isPermission ? .notPermitted : .inputOutput }
}
