import AgentProtocol
import CNATS
import LinuxSystem

/// The errors of JetStream's API, from their codes (status.h, and
/// https://github.com/nats-io/nats-server/blob/main/server/errors.json).
extension NATSError {
    /// Converts the error of a call of the library.
    init(_ status: natsStatus, api code: jsErrCode, _ operation: String, at server: ServerAddress) {
        let failure = NATSError(status, operation, at: server)
        let found = Self.code(api: Int(code.rawValue)) ?? failure.code
        self.init(found, failure.message)
    }

    /// Converts an error object of a reply.
    init(api error: JSONObject, _ operation: String, at server: ServerAddress) {
        let number = error.integer("err_code") ?? 0
        let text = error.string("description") ?? "unknown error"
        self.init(
            Self.code(api: Int(clamping: number)) ?? .rejected,
            "\(operation) \(server): \(PrintableText(text)) (\(number))")
    }

    private static func code(api number: Int) -> Code? {
        switch number {
        case 10039, 10076, 10008: .noJetStream
        case 10074: .noCluster
        case 10059: .noStream
        case 10058, 10065: .streamDiffers
        case 10071, 10070, 10164: .streamMoved
        case 10014, 10118: .streamBroken
        default: nil
        }
    }
}

extension NATSMessage {
    /// The body as a JSON object; nil if it isn't one.
    package var json: JSONObject? {
        guard case .object(let object)? = try? JSONValue(parsing: body) else { return nil }
        return object
    }
}
