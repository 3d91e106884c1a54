import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteStore
import StoreReplication

/// The consequence of an error: it ends the program, a session, or one attempt of it.
///
/// A program that ends although it could have continued loses hours until somebody restarts it. A program that
/// continues although only a person can help hides the error. So an error that isn't known here ends the program.
enum SessionFailure {
    /// The program ends: another attempt would fail too, until a person helps.
    case end
    /// The session ends, and the loop connects again: the cause is the broker or the link to it.
    case reconnect
    /// The attempt ends: the cause is on this machine or at the home, and the connection still serves.
    case retry

    /// Classifies an error.
    ///
    /// - Parameter hasConnected: True if the broker has accepted this program before. One that refuses it now is being
    ///   changed or repaired; one that never accepted it needs other credentials.
    init(_ error: any ActionableError, hasConnected: Bool) {
        self =
            switch error {
            case let error as NATSError:
                error.isTransient || hasConnected && error.code != .streamDiffers || error.code == .noStream
                    ? .reconnect : .end
            case let error as RelayError:
                switch error {
                case .noHome, .noSnapshot, .oldSnapshot, .otherHome, .badSnapshot: .retry
                case .badName, .badKey, .superseded, .notWatched, .overdue, .cryptography: .end
                }
            case let error as ReplicationError:
                switch error {
                case .malformedBatch, .malformedSnapshot, .gone, .abandonedJournal: .retry
                default: .end
                }
            case let error as StoreError:
                switch error {
                // The store is being relocated, restored or replaced.
                case .busy, .missing: .retry
                case .sqlite: error.isPermission ? .end : .retry
                case .notAFile, .foreign, .sideFileIsDatabase, .foreignLog, .corrupt, .superJournalElsewhere: .end
                }
            case let error as SystemError: error.isPermission ? .end : .retry
            // The next session looks for another place in the history.
            case is StoreHistory.Discontinuity: .retry
            case HistoryError.outdated: .retry
            default: .end
            }
    }
}
