import CNATS
import Glibc

/// A received message, copied from the library's memory.
package struct NATSMessage: Sendable {
    package let subject: String
    /// The subject for replies; nil if none is expected.
    package let reply: String?
    /// The headers' first values, by name with the case in which they were sent.
    package let headers: [String: String]
    package let body: [UInt8]
    /// The number in the stream of a message that was got by number, else 0.
    package let sequence: UInt64

    package init(subject: String, reply: String? = nil, headers: [String: String] = [:], body: [UInt8] = []) {
        self.subject = subject
        self.reply = reply
        self.headers = headers
        self.body = body
        sequence = 0
    }

    /// Copies the message, and destroys the library's.
    init(taking message: OpaquePointer) {
        defer { natsMsg_Destroy(message) }
        subject = natsMsg_GetSubject(message).map { String(cString: $0) } ?? ""
        reply = natsMsg_GetReply(message).map { String(cString: $0) }
        let count = Int(natsMsg_GetDataLength(message))
        body =
            natsMsg_GetData(message).map { start in
                Array(UnsafeRawBufferPointer(start: start, count: count))
            } ?? []
        sequence = natsMsg_GetSequence(message)
        headers = Self.headers(message)
    }

    private static func headers(_ message: OpaquePointer) -> [String: String] {
        var keys: UnsafeMutablePointer<UnsafePointer<CChar>?>?
        var count: CInt = 0
        guard natsMsgHeader_Keys(message, &keys, &count) == NATS_OK, let keys else { return [:] }
        // The names themselves belong to the message.
        defer { free(keys) }
        var found: [String: String] = [:]
        for index in 0..<Int(count) {
            guard let key = keys[index] else { continue }
            var value: UnsafePointer<CChar>?
            guard natsMsgHeader_Get(message, key, &value) == NATS_OK, let value else { continue }
            found[String(cString: key)] = String(cString: value)
        }
        return found
    }
}

/// A message to send.
package struct OutgoingMessage: Sendable {
    package var subject: String
    package var reply: String?
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]

    package init(
        _ subject: String, reply: String? = nil, headers: [(name: String, value: String)] = [], body: [UInt8] = []
    ) {
        self.subject = subject
        self.reply = reply
        self.headers = headers
        self.body = body
    }

    /// Passes the library's form of the message to `body`, and destroys it afterwards.
    func withMessage<Result>(_ use: (OpaquePointer) throws(NATSError) -> Result) throws(NATSError) -> Result {
        var message: OpaquePointer?
        let status = body.withUnsafeBytes { bytes in
            natsMsg_Create(
                &message, subject, reply, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), CInt(bytes.count))
        }
        try check(status, "message to \(subject)")
        guard let message else { throw NATSError(.rejected, "natsMsg_Create returned nothing") }
        defer { natsMsg_Destroy(message) }
        for (name, value) in headers {
            try check(natsMsgHeader_Set(message, name, value), "header \(name) of a message to \(subject)")
        }
        return try use(message)
    }
}
