import CNATS
import LinuxSystem

/// The properties of a stream that a publisher creates. Everything else is the broker's default.
package struct StreamConfiguration: Sendable {
    package let name: String
    package let subject: String
    /// The time for which messages are kept; nil for no limit.
    package var maxAge: Duration?
    /// The bytes above which the oldest messages are dropped; nil for no limit.
    package var maxBytes: Int64?
    /// The number of copies; nil for three in a cluster, else one.
    package var replicas: Int?

    package init(name: String, subject: String) {
        self.name = name
        self.subject = subject
    }
}

/// A stream's first and last message.
package struct StreamState: Sendable, Equatable {
    /// The largest number that is accepted. No stream reaches it, and arithmetic with smaller ones never overflows.
    static let maxNumber = UInt64(Int64.max)

    /// The number of the first message that is kept.
    package let first: UInt64
    /// The number of the last message; 0 if there never was one.
    package let last: UInt64
    package let messages: UInt64
    /// The time at which the stream was created, in nanoseconds since 1970: a stream that was deleted and created again
    /// has another one.
    package let created: Int64
    /// The time of the last message, in nanoseconds since 1970.
    package let lastTime: Int64
}

extension NATSConnection {
    /// Creates the stream, or checks that the existing one keeps messages in files, in one place, and lets nobody
    /// delete them. An existing stream gets the configuration's limits.
    ///
    /// Throws `NATSError`, with `streamDiffers` if the stream isn't such a one.
    package func ensureStream(_ wanted: StreamConfiguration) throws(NATSError) {
        var info: UnsafeMutablePointer<jsStreamInfo>?
        var code = jsErrCode(0)
        let status = watching("js_GetStreamInfo") { js_GetStreamInfo(&info, jetStream, wanted.name, nil, &code) }
        if status == NATS_NOT_FOUND || code == JSStreamNotFoundErr { return try createStream(wanted) }
        guard status == NATS_OK, let info else { throw apiFailure(status, "stream \(wanted.name)", code: code) }
        defer { jsStreamInfo_Destroy(info) }
        try checkConfiguration(info.pointee, wanted)
        guard let config = info.pointee.Config else { return }
        let maxAge = wanted.maxAge?.nanoseconds ?? config.pointee.MaxAge
        let maxBytes = wanted.maxBytes ?? config.pointee.MaxBytes
        let replicas = wanted.replicas.map { Int64($0) } ?? config.pointee.Replicas
        // Older servers accept the change, and make no copy.
        guard wanted.replicas ?? 1 == 1 || info.pointee.Cluster != nil else {
            throw NATSError(.noCluster, "stream \(wanted.name) \(server): the broker is no cluster")
        }
        guard
            maxAge != config.pointee.MaxAge || maxBytes != config.pointee.MaxBytes
                || replicas != config.pointee.Replicas
        else { return }
        config.pointee.MaxAge = maxAge
        config.pointee.MaxBytes = maxBytes
        config.pointee.Replicas = replicas
        try apiCheck("change stream \(wanted.name)") { js_UpdateStream(nil, jetStream, config, nil, &$0) }
    }

    private func createStream(_ wanted: StreamConfiguration) throws(NATSError) {
        guard let replicas = wanted.replicas else {
            do throws(NATSError) {
                return try createStream(wanted, replicas: 3)
            } catch {
                // Waits for a cluster that can't make three copies at the moment.
                guard error.code == .noCluster else { throw error }
                return try createStream(wanted, replicas: 1)
            }
        }
        try createStream(wanted, replicas: replicas)
    }

    private func createStream(_ wanted: StreamConfiguration, replicas: Int) throws(NATSError) {
        var config = jsStreamConfig()
        try check(jsStreamConfig_Init(&config), "stream \(wanted.name)", at: server)
        let operation = "create stream \(wanted.name)"
        let failure = wanted.name.withCString { name -> NATSError? in
            wanted.subject.withCString { subject -> NATSError? in
                var subjects: [UnsafePointer<CChar>?] = [subject]
                return subjects.withUnsafeMutableBufferPointer { list -> NATSError? in
                    config.Name = name
                    config.Subjects = list.baseAddress
                    config.SubjectsLen = 1
                    config.Storage = js_FileStorage
                    config.Retention = js_LimitsPolicy
                    config.Discard = js_DiscardOld
                    config.DenyDelete = true
                    config.DenyPurge = true
                    config.Replicas = Int64(replicas)
                    config.MaxAge = wanted.maxAge?.nanoseconds ?? 0
                    config.MaxBytes = wanted.maxBytes ?? -1
                    do throws(NATSError) {
                        try apiCheck(operation) { js_AddStream(nil, jetStream, &config, nil, &$0) }
                        return nil
                    } catch {
                        return error
                    }
                }
            }
        }
        if let failure { throw failure }
    }

    /// Returns the setting in which a stream differs from what a publisher relies on; nil if there is none.
    private static func difference(_ found: jsStreamConfig, _ wanted: StreamConfiguration) -> String? {
        let subject = found.SubjectsLen == 1 ? found.Subjects?[0].map { String(cString: $0) } : nil
        if subject != wanted.subject { return "has other subjects than \(wanted.subject)" }
        if found.Storage != js_FileStorage { return "keeps its messages in memory" }
        if found.Mirror != nil || found.SourcesLen > 0 { return "is a copy of another stream" }
        if found.Retention != js_LimitsPolicy { return "drops messages that were read" }
        if found.Discard != js_DiscardOld { return "rejects new messages when it is full" }
        if !found.DenyDelete || !found.DenyPurge { return "lets messages be deleted" }
        if found.AllowRollup { return "lets a message replace all others" }
        if found.NoAck { return "doesn't confirm what it has stored" }
        if found.Sealed { return "is sealed" }
        if found.RePublish != nil { return "publishes its messages on other subjects, too" }
        return nil
    }

    /// Returns the stream's state. Throws `NATSError`, with `noStream` if there is none of that name.
    package func state(ofStream name: String) throws(NATSError) -> StreamState {
        var info: UnsafeMutablePointer<jsStreamInfo>?
        try apiCheck("stream \(name)") { js_GetStreamInfo(&info, jetStream, name, nil, &$0) }
        guard let info else { throw NATSError(.rejected, "js_GetStreamInfo returned nothing") }
        defer { jsStreamInfo_Destroy(info) }
        return try state(info.pointee, name)
    }

    private func state(_ info: jsStreamInfo, _ name: String) throws(NATSError) -> StreamState {
        let state = info.State
        guard state.LastSeq <= StreamState.maxNumber, state.FirstSeq <= StreamState.maxNumber else {
            throw NATSError(.rejected, "stream \(name) \(server): the broker states impossible numbers")
        }
        return StreamState(
            first: state.FirstSeq, last: state.LastSeq, messages: state.Msgs, created: info.Created,
            lastTime: state.LastTime)
    }

    /// Returns the stream's state. Throws `NATSError`, with `noStream` if there is none of that name, and with
    /// `streamDiffers` if somebody has changed what a publisher relies on.
    package func checkedState(_ wanted: StreamConfiguration) throws(NATSError) -> StreamState {
        var info: UnsafeMutablePointer<jsStreamInfo>?
        try apiCheck("stream \(wanted.name)") { js_GetStreamInfo(&info, jetStream, wanted.name, nil, &$0) }
        guard let info else { throw NATSError(.rejected, "js_GetStreamInfo returned nothing") }
        defer { jsStreamInfo_Destroy(info) }
        try checkConfiguration(info.pointee, wanted)
        return try state(info.pointee, wanted.name)
    }

    /// Throws `NATSError` if the stream isn't what a publisher relies on.
    private func checkConfiguration(_ info: jsStreamInfo, _ wanted: StreamConfiguration) throws(NATSError) {
        guard let config = info.Config else {
            throw NATSError(.rejected, "stream \(wanted.name) \(server): the broker states no configuration")
        }
        if let difference = Self.difference(config.pointee, wanted) {
            throw NATSError(.streamDiffers, "stream \(wanted.name) \(server) \(difference)")
        }
    }

    /// Returns the message with this number, or nil if the stream no longer, or not yet, has it. Throws `NATSError`.
    package func message(_ sequence: UInt64, ofStream name: String) throws(NATSError) -> NATSMessage? {
        var message: OpaquePointer?
        var code = jsErrCode(0)
        let status = withMessageLimit { options in
            watching("js_GetMsg", limit: messageLimit) {
                js_GetMsg(&message, jetStream, name, sequence, &options, &code)
            }
        }
        return try found(message, status, code: code, operation: "message \(sequence) of stream \(name)")
    }

    /// Returns the stream's last message, or nil if it has none. Throws `NATSError`.
    package func lastMessage(ofStream name: String, subject: String) throws(NATSError) -> NATSMessage? {
        var message: OpaquePointer?
        var code = jsErrCode(0)
        let status = withMessageLimit { options in
            watching("js_GetLastMsg", limit: messageLimit) {
                js_GetLastMsg(&message, jetStream, name, subject, &options, &code)
            }
        }
        return try found(message, status, code: code, operation: "last message of stream \(name)")
    }

    /// The limit for an answer that has a message: it may have a mebibyte, and the link may be slow.
    private var messageLimit: Duration { timeout * 6 }

    private func withMessageLimit(_ call: (inout jsOptions) -> natsStatus) -> natsStatus {
        var options = jsOptions()
        jsOptions_Init(&options)
        options.Wait = messageLimit.nanoseconds / 1_000_000
        return apiPrefix.withCString { prefix in
            options.Prefix = prefix
            return call(&options)
        }
    }

    private func found(
        _ message: OpaquePointer?, _ status: natsStatus, code: jsErrCode, operation: String
    ) throws(NATSError) -> NATSMessage? {
        if status == NATS_OK, let message {
            let found = NATSMessage(taking: message)
            guard found.sequence <= StreamState.maxNumber else {
                throw NATSError(.rejected, "\(operation) \(server): its number is impossible")
            }
            return found
        }
        if code == JSNoMessageFoundErr { return nil }
        throw apiFailure(status, operation, code: code)
    }

    private func apiCheck(
        _ operation: String, _ call: (inout jsErrCode) -> natsStatus
    ) throws(NATSError) {
        var code = jsErrCode(0)
        let status = watching("JetStream") { call(&code) }
        if status != NATS_OK { throw apiFailure(status, operation, code: code) }
    }

    private func apiFailure(_ status: natsStatus, _ operation: String, code: jsErrCode) -> NATSError {
        code.rawValue == 0
            ? failure(status, operation) : NATSError(status, api: code, operation, at: server)
    }
}
