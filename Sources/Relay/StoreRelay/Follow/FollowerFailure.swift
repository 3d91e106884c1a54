import LinuxSystem
import NATSStreams
import SQLiteStore
import StoreReplication

/// What a follower does after an error.
enum FollowerFailure {
    /// It ends: another attempt fails too, until somebody helps.
    case end
    /// It connects to the broker again.
    case reconnect
    /// It tries again over the same connection: the cause is on this machine, or at the home.
    case retry

    /// - Parameter hasConnected: True if the broker has accepted this follower before: then it is being changed or
    ///   repaired.
    init(_ error: any ActionableError, hasConnected: Bool) {
        self =
            switch error {
            case let error as NATSError:
                error.isTransient || hasConnected || error.code == .noStream ? .reconnect : .end
            case let error as RelayError:
                switch error {
                case .noHome, .noSnapshot, .oldSnapshot, .otherHome, .badSnapshot: .retry
                case .badName, .badKey, .superseded, .notWatched, .overdue, .cryptography: .end
                }
            case let error as ReplicationError:
                switch error {
                case .malformedBatch, .malformedSnapshot, .gone: .retry
                default: .end
                }
            case let error as StoreError:
                switch error {
                case .busy: .retry
                case .sqlite: error.isPermission ? .end : .retry
                default: .end
                }
            case let error as SystemError: error.isPermission ? .end : .retry
            default: .end
            }
    }
}
