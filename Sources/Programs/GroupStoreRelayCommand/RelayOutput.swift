import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
import LinuxSystem
import NATSStreams
import PersistentHistory
import RelayStatus
import SQLiteStore
import StoreRelay
import StoreReplication

extension Output {
    /// Prints an event: JSON on standard output, and a line of the log on standard error.
    func report(_ event: RelayEvent) {
        // Programs wait for the one, and people read the other.
        if json { record(event.object) }
        if event.isError || !quiet { log(event.sentence, isError: event.isError) }
    }

    private func log(_ line: String, isError: Bool) {
        // The journal has times of its own, and takes the priority from the prefix (sd-daemon(3)).
        let isJournal = Environment.all["JOURNAL_STREAM"] != nil
        let prefix = isJournal ? (isError ? "<4>" : "<6>") : (WireTime.text(RelayRecord.now).map { $0 + " " } ?? "")
        Self.write(prefix + line, to: STDERR_FILENO)
    }

    /// Returns a watchdog that ends the program with exit code 74 if a call of the broker's library doesn't end.
    func watchdog() throws(SystemError) -> Watchdog {
        try Watchdog { call, limit in
            let error = RelayError.overdue(call, limit: limit)
            fail(FailureReport(error), program: "groupstore-relay")
            // Whatever is under way is a transaction: it is done or undone.
            _exit(ExitStatus(anyOf: error).rawValue)
        }
    }

    /// Runs a command's body, and converts every error that has a remedy to a message and an exit code.
    func reporting(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as any ActionableError {
            let report = FailureReport(error)
            let kind = ["superseded", "diverged"].contains(report.code) ? report.code : nil
            if let kind, json {
                record(["type": .string(kind), "message": .string(report.message), "hint": .string(report.remedy)])
            }
            fail(report, program: "groupstore-relay", outcome: kind ?? "failed")
            throw ExitStatus(anyOf: error).code
        }
    }

    /// Runs a command that works until a signal ends it, or until its output can't be written any more.
    func running(_ body: (_ stop: RelayStop, _ report: @escaping @Sendable (RelayEvent) -> Void) throws -> Void) throws
    {
        try reporting {
            let signals = try StopSignals()
            try body(signals.stop) { event in
                report(event)
                if Self.hasLostOutput { signals.stop.request() }
            }
            record(["type": "summary", "outcome": "stopped"])
        }
        if StopSignals.endCode != 0 { throw ExitCode(StopSignals.endCode) }
    }
}

extension ExitStatus {
    /// The exit code for an error of a relay.
    fileprivate init(anyOf error: any ActionableError) {
        self =
            switch error {
            case let error as NATSError: Self.status(of: error.code)
            case let error as RelayError:
                switch error {
                case .badName: .usage
                case .badKey: .configuration
                case .superseded: .conflict
                case .noHome, .noSnapshot, .oldSnapshot, .otherHome, .badSnapshot, .notWatched, .overdue,
                    .cryptography:
                    .inputOutput
                }
            case let error as ReplicationError:
                switch error {
                case .diverged, .exists, .isReplica, .otherFormat, .otherStream: .conflict
                case .abandonedJournal, .inUse: .busy
                default: .badData
                }
            case let error as StoreError: ExitStatus(error)
            case let error as SystemError: ExitStatus(error)
            case is HistoryError, is StoreHistory.Discontinuity: .badData
            default: .inputOutput
            }
    }

    private static func status(of code: NATSError.Code) -> ExitStatus {
        switch code {
        case .badAddress: .usage
        case .badFile, .insecure, .tls: .configuration
        case .refused, .notPermitted: .notPermitted
        case .streamDiffers: .conflict
        default: .unavailable
        }
    }
}
