import CommandSupport
import FileCoordination
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModels
import MappingModels
import PersistentHistory
import SQLiteStore
import StoreWatching
import StoreMigration
import StoreRelocation
import SystemPackage

/// The error with which a command ends: an exit status, a message and a remedy. `reporting` makes one of every
/// `ActionableError`.
struct CommandFailure: ActionableError {
    let status: ExitStatus
    /// A code that scripts can rely on, such as `no_agent`.
    let errorCode: String
    let message: String
    /// Additional lines of the message.
    let reasons: [String]
    let remedy: String
    let underlyingError: (any Error)?

    init(
        _ status: ExitStatus, code: String, _ message: String, reasons: [String] = [], remedy: String,
        underlying: (any Error)? = nil
    ) {
        self.status = status
        errorCode = code
        self.message = message
        self.reasons = reasons
        self.remedy = remedy
        underlyingError = underlying
    }
}

extension CommandFailure {
    /// Converts any error that has a remedy.
    init(_ error: any ActionableError) {
        if let failure = error as? CommandFailure {
            self = failure
            return
        }
        let further = (error as? MigrationError)?.findings.dropFirst() ?? []
        self.init(
            Self.status(of: error), code: error.errorCode, Self.context(of: error) + error.fullMessage,
            reasons: further.map { "  " + $0.sentence },
            remedy: (error as? SystemError)?.commandRemedy ?? error.remedy, underlying: error)
    }

    /// Returns the option at fault, if the error doesn't say where to look.
    private static func context(of error: any ActionableError) -> String {
        isBadRenaming(error) ? "--rename: " : ""
    }

    private static func isBadRenaming(_ error: any ActionableError) -> Bool {
        (error as? ModelFault)?.errorCode == ModelFault.badRenamingCode
    }

    private static func status(of error: any ActionableError) -> ExitStatus {
        switch error {
        case _ where isBadRenaming(error): .usage
        case is ActivationSocket.Failure: .configuration
        case let error as AgentConnectionError: status(of: error)
        case let error as AgentInstance.Failure: if case .alreadyServed = error { .busy } else { .configuration }
        case let error as ConfigurationError: error.kind == .notPermitted ? .notPermitted : .configuration
        case let error as DirectFeedError: if case .notAStore = error { .badData } else { .inputOutput }
        case let error as FileCoordinationError: error.code == .notWritable ? .notPermitted : .busy
        case let error as HistoryError: status(of: error)
        case let error as MappingModelError:
            status(isMissing: error.code == .missing, isUnreadable: error.code == .unreadable, error.errno)
        case let error as MigrationError: status(of: error)
        case let error as ModelError where error.code == .exists: .conflict
        case let error as ModelError:
            status(isMissing: error.code == .missing, isUnreadable: error.code == .unreadable, error.errno)
        case let error as RelocationFailure: ExitStatus(rawValue: error.exitCode) ?? .inputOutput
        case let error as StoreError: ExitStatus(error)
        case let error as SystemError: ExitStatus(error)
        case is NewStore.AlreadyExists: .conflict
        case is UntrustedJournal: .notPermitted
        case is ModelFault, is MappingFault, is MappingInferenceError, is UnreadableRecord,
            is StoreHistory.Discontinuity, is XMLStoreError:
            .badData
        default: .inputOutput
        }
    }

    private static func status(isMissing: Bool, isUnreadable: Bool, _ errno: Errno?) -> ExitStatus {
        guard isMissing || isUnreadable else { return .badData }
        return isUnreadable && [.permissionDenied, .notPermitted].contains(errno) ? .notPermitted : .inputOutput
    }

    private static func status(of error: HistoryError) -> ExitStatus {
        switch error {
        case .unacknowledged: .busy
        case .replica: .conflict
        default: .badData
        }
    }

    private static func status(of error: MigrationError) -> ExitStatus {
        switch error.code {
        case CoreDataError.migrationCancelled: .interrupted
        case CoreDataError.migration where error.isOfTheDisk: .inputOutput
        default: .badData
        }
    }

    private static func status(of error: AgentConnectionError) -> ExitStatus {
        switch error {
        case .noSocketPath, .noAgent, .lost, .notUnderstood: .unavailable
        case .timedOut: .busy
        case .tooLong: .usage
        case .interrupted: .interrupted
        case .refused(let refusal):
            switch refusal.code {
            case "not_permitted": .notPermitted
            case "too_many_connections", "too_many_subscriptions": .busy
            default: .unavailable
            }
        }
    }
}

extension SystemError {
    /// The remedy for a person at a terminal, who can do more than a program that gets the error.
    fileprivate var commandRemedy: String {
        if let procRemedy { return procRemedy }
        return switch errno {
        case .permissionDenied, .notPermitted: "run this as the owner of these files"
        case .noSpace where call == "inotify_add_watch":
            ResourceLimit(self)?.remedy ?? "raise the limit fs.inotify.max_user_watches"
        case .noSpace, .diskQuotaExceeded:
            path?.starts(with: ScratchDirectory.place) == false ? remedy : "\(remedy), or set TMPDIR"
        case .noSuchFileOrDirectory: "nothing exists at this path: create the directory, or correct the path"
        case .tooManyOpenFiles where call == "inotify_init":
            "start it with fewer open files, or see which limit: groupstore doctor"
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem:
            "start it with fewer open files, or raise the limit: ulimit -n, fs.inotify.max_user_instances"
        default: obstacleRemedy ?? "see what the kernel logged: dmesg or journalctl -k"
        }
    }
}
