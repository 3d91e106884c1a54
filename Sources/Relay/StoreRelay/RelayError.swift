import LinuxSystem
import PersistentHistory
import SystemPackage

/// The reasons why a relay or a follower stops, beside those of the store and of the broker.
package enum RelayError: ActionableError {
    /// A stream's or a follower's name has characters that subjects can't have.
    case badName(String, String)
    /// The file has no key.
    case badKey(FilePath)
    /// Another home publishes to the stream, or the store was restored from a backup. The token is the stream's last.
    case superseded(stream: String, HistoryToken, FilePath)
    /// No home answers requests for snapshots of the stream.
    case noHome(stream: String)
    /// The home can't make a snapshot.
    case noSnapshot(String)
    /// The home offers a snapshot of a state before the one that the replica has.
    case oldSnapshot(HistoryToken, position: HistoryToken)
    /// The home offers a snapshot of another history than that of the stream's last message.
    case otherHome(HistoryToken, last: HistoryToken)
    /// A received snapshot isn't the one that was announced.
    case badSnapshot(String)
    /// The store can't be watched, for a reason that has no code of its own.
    case notWatched(String)
    /// A call that has a time limit hasn't ended, nor could it be made to.
    case overdue(StaticString, limit: Duration)
    /// The digest of a message can't be computed.
    case cryptography(String)

    package var errorCode: String {
        switch self {
        case .badName: "bad_name"
        case .badKey: "bad_key"
        case .superseded: "superseded"
        case .noHome: "no_home"
        case .noSnapshot: "no_snapshot"
        case .oldSnapshot: "old_snapshot"
        case .otherHome: "other_home"
        case .badSnapshot: "malformed_snapshot"
        case .notWatched: "not_watched"
        case .overdue: "overdue"
        case .cryptography: "cryptography"
        }
    }

    package var message: String {
        switch self {
        case .badName(let kind, let name):
            "\"\(PrintableText(String(name.prefix(100))))\" can't be the name of a \(kind)"
        case .badKey(let path): "\(PrintablePath(path)) contains no key"
        case .superseded(let stream, let token, let path):
            "\(PrintablePath(path)) is superseded: the stream \(stream) leads to \(token), which isn't in its history"
        case .noSnapshot(let reason): "the home makes no snapshot: \(PrintableText(reason))"
        case .noHome(let stream): "snapshot of \(stream): no home answers"
        case .oldSnapshot(let token, let position):
            "the home offers a snapshot up to \(token), which is before this replica's position \(position)"
        case .otherHome(let token, let last):
            "the home offers a snapshot up to \(token), and the stream leads to another history: \(last)"
        case .badSnapshot(let reason): "the snapshot isn't valid: \(PrintableText(reason))"
        case .notWatched(let reason): "the store can't be watched: \(PrintableText(reason))"
        case .overdue(let call, let limit): "\(call) should have ended after \(limit), and doesn't end"
        case .cryptography(let call): "libcrypto: \(call) failed"
        }
    }

    package var remedy: String {
        switch self {
        case .badName: "use 1 to 64 letters, digits, - and _"
        case .badKey: "write at least 16 bytes into it, such as: openssl rand -hex 32"
        case .superseded(_, let token, _):
            "see which store is the home; to continue with this one: groupstore-relay publish --take-over \(token)"
        case .noHome: "start groupstore-relay publish for the store; the request is repeated"
        case .noSnapshot: "see the home's log; the request is repeated"
        case .oldSnapshot: "see whether the home was restored from a backup (Documentation/Relay.md, \"Two homes\")"
        case .otherHome: "see that only one home publishes to the stream (Documentation/Relay.md, \"Two homes\")"
        case .badSnapshot: "it is requested again; if that doesn't help, see that both sides have the same --key"
        case .notWatched: "the store is read every few seconds meanwhile, and watched again once it can be"
        case .overdue: "start it again, as its unit does: it goes on where it was; please report it"
        case .cryptography: "see that OpenSSL is installed whole"
        }
    }

    package var errorPath: FilePath? {
        switch self {
        case .badKey(let path), .superseded(_, _, let path): path
        default: nil
        }
    }
}
