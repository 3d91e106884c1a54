import AgentProtocol
import ArgumentParser
import Glibc
import LinuxSystem
import NATSStreams
import PersistentHistory
import RelayStatus
import SQLiteStore
import StoreRelay
import StoreReplication
import Synchronization

/// The options that every command accepts.
struct OutputOptions: ParsableArguments {
    @Flag(help: "Print one JSON object per line; the last one is the summary.")
    var json = false

    @Flag(help: "Log errors only.")
    var quiet = false
}

/// The output: JSON on standard output, and a log on standard error. Each line is written at once.
struct RelayOutput: Sendable {
    let json: Bool
    let quiet: Bool
    private static let isJournal = Environment.all["JOURNAL_STREAM"] != nil

    init(_ options: OutputOptions) {
        json = options.json
        quiet = options.quiet
    }

    /// Prints an event. Returns false if standard output can't be written to.
    @discardableResult
    func report(_ event: RelayEvent) -> Bool {
        if event.isError || !quiet { log(event.sentence, isError: event.isError) }
        return record(event.object)
    }

    /// Prints an object, under `--json`.
    @discardableResult
    func record(_ object: JSONObject) -> Bool { json ? Self.write(object.text + "\n", to: STDOUT_FILENO) : true }

    /// Prints a line for people, unless under `--json`.
    func print(_ line: String) {
        if !json, !quiet { Self.write(PrintableText(line).description + "\n", to: STDOUT_FILENO) }
    }

    func log(_ line: String, isError: Bool) {
        // The journal has times of its own, and takes the priority from the prefix (sd-daemon(3)).
        let prefix =
            Self.isJournal ? (isError ? "<4>" : "<6>") : (WireTime.text(RelayRecord.now).map { $0 + " " } ?? "")
        Self.write(prefix + PrintableText(line).description + "\n", to: STDERR_FILENO)
    }

    @discardableResult
    private static func write(_ text: String, to descriptor: CInt) -> Bool {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            bytes = bytes.dropFirst(count)
        }
        return true
    }
}

extension RelayOutput {
    /// Runs a command's body, and converts every error that has a remedy to a message and an exit code.
    func reporting(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as any ActionableError {
            let failure: JSONObject = [
                "code": .string(error.errorCode), "message": .string(error.fullMessage), "hint": .string(error.remedy),
            ]
            let kind = ["superseded", "diverged"].contains(error.errorCode) ? error.errorCode : nil
            if let kind {
                record(["type": .string(kind), "message": .string(error.fullMessage), "hint": .string(error.remedy)])
            }
            record(["type": "summary", "outcome": .string(kind ?? "failed"), "error": .object(failure)])
            Self.write("groupstore-relay: \(PrintableText(error.messageWithRemedy))\n", to: STDERR_FILENO)
            throw ExitStatus(error).code
        }
    }
}

/// The program's exit codes: those of `groupstore`.
enum ExitStatus: Int32 {
    case usage = 64
    case badData = 65
    case noBroker = 69
    case conflict = 73
    case inputOutput = 74
    case busy = 75
    case notPermitted = 77
    case configuration = 78
    case interrupted = 130

    var code: ExitCode { ExitCode(rawValue) }

    init(_ error: any ActionableError) {
        self =
            switch error {
            case let error as NATSError: Self.status(of: error.code)
            case let error as RelayError:
                switch error {
                case .badName: .usage
                case .badKey: .configuration
                case .superseded: .conflict
                case .noHome, .noSnapshot, .oldSnapshot, .badSnapshot, .notWatched, .cryptography: .inputOutput
                }
            case let error as ReplicationError:
                switch error {
                case .diverged, .exists, .isReplica, .otherFormat, .otherStream: .conflict
                default: .badData
                }
            case let error as StoreError:
                switch error {
                case .missing: .inputOutput
                case .notAFile, .foreign, .corrupt, .superJournalElsewhere: .badData
                case .busy: .busy
                case .sqlite: error.isPermission ? .notPermitted : .inputOutput
                }
            case let error as SystemError: error.isPermission ? .notPermitted : .inputOutput
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
        default: .noBroker
        }
    }
}

/// The standard input, output and error descriptors. If one is closed, the next opened file gets its number, and
/// messages for people are written into it: into a store.
enum StandardDescriptors {
    static func openMissing() {
        // open(2) returns the lowest free number.
        while true {
            let descriptor = open("/dev/null", O_RDWR)
            guard descriptor >= 0 else { return }
            if descriptor > STDERR_FILENO {
                close(descriptor)
                return
            }
        }
    }
}
