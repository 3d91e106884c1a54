import CNATS
import LinuxSystem

/// A connection to a broker. It doesn't reconnect when it is lost: its owner opens another one, and reads the stream's
/// state again.
///
/// All calls block. Any thread may use a connection; the library locks it. `close` ends every call that waits. A
/// watchdog closes it if a call outlasts its limit: the library measures limits by the wall clock, which may be set
/// back.
package final class NATSConnection: Sendable {
    /// The library's connection. Its own lock protects it.
    nonisolated(unsafe) let connection: OpaquePointer
    /// The library's JetStream context. The connection's lock protects it.
    nonisolated(unsafe) let jetStream: OpaquePointer
    /// The server to which it was made.
    package let server: ServerAddress
    /// The beginning of the subjects of JetStream's API, without a dot at its end.
    package let apiPrefix: String
    private let inboxPrefix: String
    /// The limit for a request.
    package let timeout: Duration
    /// Watches the calls; nil if nobody does.
    package let watchdog: Watchdog?

    /// Connects to the first server that accepts. Throws the last server's `NATSError`.
    package convenience init(_ options: ConnectionOptions) throws(NATSError) {
        var failure = NATSError(.badAddress, "no server is named")
        for server in options.servers {
            do throws(NATSError) {
                try self.init(options, server)
                return
            } catch {
                failure = error
            }
        }
        throw failure
    }

    private init(_ options: ConnectionOptions, _ server: ServerAddress) throws(NATSError) {
        let native = try options.make(for: server)
        defer { natsOptions_Destroy(native) }
        var made: OpaquePointer?
        let status = options.watchdog.watch("natsConnection_Connect", limit: options.timeout * 2) {
            natsConnection_Connect(&made, native)
        }
        guard status == NATS_OK, let made else { throw NATSError(status, "connect to", at: server) }
        var context: OpaquePointer?
        var settings = jsOptions()
        jsOptions_Init(&settings)
        settings.Wait = max(1, options.timeout.nanoseconds / 1_000_000)
        let prefix = Self.apiPrefix(options, made)
        let contextStatus = prefix.withCString { prefix in
            settings.Prefix = prefix
            return natsConnection_JetStream(&context, made, &settings)
        }
        guard contextStatus == NATS_OK, let context else {
            natsConnection_Destroy(made)
            throw NATSError(contextStatus, "connect to", at: server)
        }
        connection = made
        jetStream = context
        self.server = server
        apiPrefix = prefix
        inboxPrefix = options.inboxPrefix
        timeout = options.timeout
        watchdog = options.watchdog
    }

    /// Returns the options' prefix, unless the broker says that nobody answers there.
    private static func apiPrefix(_ options: ConnectionOptions, _ connection: OpaquePointer) -> String {
        guard let api = options.streamAPI else { return usualAPIPrefix }
        var reply: OpaquePointer?
        let status = options.watchdog.watch("natsConnection_RequestString", limit: options.timeout) {
            natsConnection_RequestString(
                &reply, connection, "\(api.prefix).STREAM.INFO.\(api.stream)", "",
                max(1, options.timeout.nanoseconds / 1_000_000))
        }
        natsMsg_Destroy(reply)
        return status == NATS_NO_RESPONDERS ? usualAPIPrefix : api.prefix
    }

    private static let usualAPIPrefix = "$JS.API"

    deinit {
        jsCtx_Destroy(jetStream)
        watchdog.watch("natsConnection_Destroy", limit: timeout) { natsConnection_Destroy(connection) }
    }

    /// Closes the connection. Every call that waits ends with `NATSError.Code.lost`.
    package func close() {
        watchdog.watch("natsConnection_Close", limit: timeout) { natsConnection_Close(connection) }
    }

    /// Performs a call of the library, and closes the connection if the call doesn't end in time.
    ///
    /// - Parameter limit: The call's own limit; nil for `timeout`.
    func watching<Success, Failure>(
        _ name: StaticString, limit: Duration? = nil, _ body: () throws(Failure) -> Success
    ) throws(Failure) -> Success {
        try watchdog.watch(name, limit: limit ?? timeout, interrupt: { [self] in close() }, body)
    }

    package var isClosed: Bool { natsConnection_IsClosed(connection) }

    /// The largest message, in bytes, that the broker accepts, headers included.
    package var maxPayload: Int { max(0, Int(clamping: natsConnection_GetMaxPayload(connection))) }

    /// Sends a message without waiting for anything. Throws `NATSError`.
    package func publish(_ message: OutgoingMessage) throws(NATSError) {
        try message.withMessage { native throws(NATSError) in
            let status = watching("natsConnection_PublishMsg") { natsConnection_PublishMsg(connection, native) }
            try check(status, "publish to \(message.subject)", at: server)
        }
    }

    /// Waits until the broker has read everything that was sent. Throws `NATSError`.
    package func flush() throws(NATSError) {
        let status = watching("natsConnection_FlushTimeout") {
            natsConnection_FlushTimeout(connection, timeout.nanoseconds / 1_000_000)
        }
        try check(status, "flush", at: server)
    }

    /// Sends a request and returns the reply. Throws `NATSError`, with `noJetStream` if nobody listens.
    package func request(_ message: OutgoingMessage, within limit: Duration? = nil) throws(NATSError) -> NATSMessage {
        let milliseconds = max(1, (limit ?? timeout).nanoseconds / 1_000_000)
        return try message.withMessage { native throws(NATSError) in
            var reply: OpaquePointer?
            let status = watching("natsConnection_RequestMsg", limit: limit) {
                natsConnection_RequestMsg(&reply, connection, native, milliseconds)
            }
            guard status == NATS_OK, let reply else { throw failure(status, "request to \(message.subject)") }
            return NATSMessage(taking: reply)
        }
    }

    /// Subscribes to a subject. Throws `NATSError`.
    package func subscribe(_ subject: String) throws(NATSError) -> NATSSubscription {
        var subscription: OpaquePointer?
        let status = watching("natsConnection_SubscribeSync") {
            natsConnection_SubscribeSync(&subscription, connection, subject)
        }
        try check(status, "subscribe to \(subject)", at: server)
        guard let subscription else { throw NATSError(.rejected, "natsConnection_SubscribeSync returned nothing") }
        return NATSSubscription(subscription, subject: subject, of: self)
    }

    /// Returns a subject below `inboxPrefix` that nobody else uses or can guess.
    package func uniqueSubject() throws(NATSError) -> String {
        var inbox: UnsafeMutablePointer<CChar>?
        try check(natsInbox_Create(&inbox), "natsInbox_Create")
        guard let inbox else { throw NATSError(.rejected, "natsInbox_Create returned nothing") }
        defer { natsInbox_Destroy(inbox) }
        let unique = String(cString: inbox).split(separator: ".").last ?? ""
        return "\(inboxPrefix).\(unique)"
    }

    /// Returns the error for a request that wasn't answered in time.
    package func timeoutFailure(_ operation: String) -> NATSError { failure(NATS_TIMEOUT, operation) }

    /// Returns the error for a subject on which the broker has forbidden this connection to publish; nil if it hasn't.
    /// The broker reports that out of band, and only the last such subject is known.
    package func denial(of subject: String, _ operation: String) -> NATSError? {
        var text: UnsafePointer<CChar>?
        _ = natsConnection_GetLastError(connection, &text)
        let last = text.map { String(cString: $0) } ?? ""
        // Servers quote it, some in lower case.
        guard last.contains("ermissions"), last.lowercased().contains("\"\(subject.lowercased())\"") else { return nil }
        return NATSError(.notPermitted, "\(operation) \(server): \(last)")
    }

    /// Returns the error for a failed request. A broker doesn't answer a forbidden request; it reports that out of
    /// band.
    func failure(_ status: natsStatus, _ operation: String) -> NATSError {
        var text: UnsafePointer<CChar>?
        _ = natsConnection_GetLastError(connection, &text)
        let last = text.map { String(cString: $0) } ?? ""
        if status == NATS_TIMEOUT, last.contains("ermissions") {
            return NATSError(.notPermitted, "\(operation) \(server): \(last)")
        }
        return NATSError(status, operation, at: server)
    }
}

/// A subscription to a subject. One thread reads it.
package final class NATSSubscription {
    private let subscription: OpaquePointer
    package let subject: String
    private let connection: NATSConnection

    init(_ subscription: OpaquePointer, subject: String, of connection: NATSConnection) {
        self.subscription = subscription
        self.subject = subject
        self.connection = connection
    }

    deinit { connection.watching("natsSubscription_Destroy") { natsSubscription_Destroy(subscription) } }

    /// Returns the next message, or nil if none comes in time. Throws `NATSError` once the connection is closed, and
    /// with `noJetStream` in place of a message by which the broker says that nobody listens to a request.
    package func next(within limit: Duration) throws(NATSError) -> NATSMessage? {
        var message: OpaquePointer?
        let milliseconds = max(1, limit.nanoseconds / 1_000_000)
        let status = connection.watching("natsSubscription_NextMsg", limit: limit) {
            natsSubscription_NextMsg(&message, subscription, milliseconds)
        }
        switch status {
        case NATS_OK: return message.map(NATSMessage.init(taking:))
        case NATS_TIMEOUT: return nil
        default: throw NATSError(status, "receive from \(subject)", at: connection.server)
        }
    }
}
