import NATSStreams
import TestSupport
import Testing

@testable import StoreRelay

/// What a home that has nothing to publish notices of its stream.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct StreamLookTests {
    private static let wanted = StreamConfiguration(name: "GS_Notes", subject: "gs.Notes.changes")

    private func code(_ look: inout StreamLook, _ connection: NATSConnection, _ last: UInt64) -> NATSError.Code? {
        do throws(NATSError) {
            try look.look(over: connection, confirmed: last)
            return nil
        } catch {
            return error.code
        }
    }

    @Test func noticesAStreamThatWasDeletedOrSetBack() throws {
        let server = try NATSServer(try #require(NATSServer.programs.last))
        let connection = try NATSConnection(
            ConnectionOptions(servers: [ServerAddress(server.url)], name: "test"))
        try connection.ensureStream(Self.wanted)
        var look = StreamLook(Self.wanted, interval: .zero)
        var seldom = StreamLook(Self.wanted)
        #expect(code(&look, connection, 0) == nil)
        #expect(code(&seldom, connection, 0) == nil)
        #expect(code(&look, connection, 1) == .streamBroken)
        _ = try connection.request(OutgoingMessage("$JS.API.STREAM.DELETE.GS_Notes"))
        #expect(code(&look, connection, 0) == .noStream)
        #expect(code(&seldom, connection, 0) == nil, "it looks once a minute")
        // One that somebody has created in its place has lost what it had.
        try connection.ensureStream(Self.wanted)
        #expect(code(&look, connection, 0) == .streamBroken)
    }
}
