import CNATS
import LinuxSystem
import SystemPackage

/// A failed operation on a broker, or on a file that a connection needs.
package struct NATSError: ActionableError, Equatable {
    package enum Code: String, Sendable {
        /// The address isn't one of a NATS server.
        case badAddress = "bad_server"
        /// A file with certificates or credentials is missing, can't be read or is readable by everybody.
        case badFile = "bad_file"
        /// No connection could be made.
        case unreachable = "broker_unreachable"
        /// The connection ended.
        case lost = "broker_lost"
        /// The broker didn't answer in time.
        case timedOut = "broker_timed_out"
        /// The broker offers no TLS, although its address isn't a loopback address.
        case insecure = "tls_required"
        /// TLS failed: a certificate isn't trusted, or has another name.
        case tls = "tls_failed"
        /// The broker rejects the credentials.
        case refused = "broker_refused"
        /// The credentials don't permit an operation.
        case notPermitted = "broker_not_permitted"
        /// JetStream isn't enabled at the broker, or has no leader at present.
        case noJetStream = "no_jetstream"
        /// The broker keeps only one copy of a stream, because it is no cluster.
        case noCluster = "no_cluster"
        /// The broker's limit for a message is too small.
        case smallPayload = "max_payload"
        case noStream = "no_stream"
        /// The stream of that name is configured differently.
        case streamDiffers = "stream_differs"
        /// The stream has another last message than the one expected: another publisher wrote to it.
        case streamMoved = "stream_moved"
        /// Messages were lost between the broker and this program, or the stream was set back.
        case streamBroken = "stream_broken"
        /// The broker rejects an operation for another reason.
        case rejected = "broker_rejected"
    }

    package let code: Code
    package let message: String
    package let remedy: String
    package let errorPath: FilePath?

    package init(_ code: Code, _ message: String, remedy: String? = nil, path: FilePath? = nil) {
        self.code = code
        self.message = message
        self.remedy = remedy ?? Self.remedy(code)
        errorPath = path
    }

    package var errorCode: String { code.rawValue }

    /// True if the same operation may succeed later, over another connection.
    package var isTransient: Bool {
        switch code {
        case .unreachable, .lost, .timedOut, .noJetStream, .streamMoved, .streamBroken, .rejected: true
        case .badAddress, .badFile, .insecure, .tls, .refused, .notPermitted, .noCluster, .smallPayload, .noStream,
            .streamDiffers:
            false
        }
    }

    /// True if another broker of the cluster may serve.
    package var concernsOneServer: Bool {
        switch code {
        case .timedOut, .noJetStream, .streamBroken: true
        default: false
        }
    }

    private static func remedy(_ code: Code) -> String {
        switch code {
        case .badAddress: "use nats://HOST:PORT or tls://HOST:PORT"
        case .badFile: "name a file that this user, and not everybody, can read"
        case .unreachable, .lost: "see that the broker runs and its address can be reached; it is tried again"
        case .timedOut: "see whether the broker is stopped or overloaded; it is tried again"
        case .insecure: "give the broker a certificate (tls in its configuration), or connect over a loopback address"
        case .tls: "name the authority of the broker's certificate with --tls-ca, and the broker as it is named there"
        case .refused: "name the right credentials with --creds, or --tls-cert and --tls-key"
        case .notPermitted: "permit these subjects in the broker's configuration (Documentation/Relay.md)"
        case .noJetStream: "enable JetStream in the broker's configuration, and see that its cluster has a leader"
        case .noCluster: "use --replicas 1"
        case .smallPayload: "set max_payload in the broker's configuration, whose default is 1 MiB"
        case .noStream: "start groupstore-relay publish for this stream first"
        case .streamDiffers: "remove that stream, or use another name"
        case .streamMoved: "the stream is read again"
        case .streamBroken: "the position is searched again"
        case .rejected: "see the broker's log"
        }
    }
}

extension NATSError {
    /// Converts a status of the library (status.h) and the text that it keeps for the calling thread.
    init(_ status: natsStatus, _ operation: String, at server: ServerAddress? = nil) {
        let detail = nats_GetLastError(nil).map { String(cString: $0) } ?? ""
        let text = String(cString: natsStatus_GetText(status))
        let place = server.map { " \($0)" } ?? ""
        let words = detail.isEmpty || detail == text ? text : "\(text): \(detail)"
        self.init(Self.code(status, detail), "\(operation)\(place): \(words)")
    }

    private static func code(_ status: natsStatus, _ detail: String) -> Code {
        switch status {
        case NATS_NO_SERVER, NATS_IO_ERROR, NATS_SYS_ERROR, NATS_NOT_YET_CONNECTED: .unreachable
        case NATS_CONNECTION_CLOSED, NATS_CONNECTION_DISCONNECTED, NATS_STALE_CONNECTION, NATS_INVALID_SUBSCRIPTION,
            NATS_DRAINING:
            .lost
        case NATS_TIMEOUT, NATS_MISSED_HEARTBEAT: .timedOut
        case NATS_SECURE_CONNECTION_WANTED: .insecure
        case NATS_SECURE_CONNECTION_REQUIRED, NATS_SSL_ERROR: .tls
        case NATS_CONNECTION_AUTH_FAILED: .refused
        case NATS_NOT_PERMITTED: detail.contains("uthoriz") ? .refused : .notPermitted
        case NATS_NO_RESPONDERS: .noJetStream
        case NATS_NOT_FOUND: .noStream
        case NATS_ADDRESS_MISSING: .badAddress
        default: .rejected
        }
    }
}

/// Throws the error for a status of the library other than success.
func check(_ status: natsStatus, _ operation: String, at server: ServerAddress? = nil) throws(NATSError) {
    if status != NATS_OK { throw NATSError(status, operation, at: server) }
}
