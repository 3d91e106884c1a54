import NATSStreams
import TestSupport
import Testing

@testable import StoreRelay

/// What a home that has nothing to publish notices of its stream.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct StreamLookTests {
    private static let wanted = StreamConfiguration(name: "GS_Notes", subject: "gs.Notes.changes")

    private func code(_ look: StreamLook, _ connection: NATSConnection) -> NATSError.Code? {
        do throws(NATSError) {
            try look.look(over: connection)
            return nil
        } catch {
            return error.code
        }
    }

    private func connect(_ server: NATSServer) throws -> NATSConnection {
        let connection = try NATSConnection(
            ConnectionOptions(servers: [ServerAddress(server.url)], name: "test"))
        try connection.ensureStream(Self.wanted)
        return connection
    }

    private func publisher(_ connection: NATSConnection, after last: UInt64) throws -> FencedPublisher {
        try FencedPublisher(connection, stream: Self.wanted.name, subject: Self.wanted.subject, after: last)
    }

    @Test func noticesAStreamThatWasDeletedOrSetBack() throws {
        let server = try NATSServer(try #require(NATSServer.programs.last))
        let connection = try connect(server)
        let created = try connection.state(ofStream: Self.wanted.name).created
        let look = StreamLook(Self.wanted, created: created, PublishedPlace(0))
        #expect(code(look, connection) == nil)
        #expect(code(StreamLook(Self.wanted, created: created, PublishedPlace(1)), connection) == .streamBroken)
        _ = try connection.request(OutgoingMessage("$JS.API.STREAM.DELETE.GS_Notes"))
        #expect(code(look, connection) == .noStream)
        // One that somebody has created in its place has lost what it had.
        try connection.ensureStream(Self.wanted)
        #expect(code(look, connection) == .streamBroken)
    }

    @Test func noticesWhatAnotherHomeHasPublished() throws {
        let server = try NATSServer(try #require(NATSServer.programs.last))
        let connection = try connect(server)
        let first = try publisher(connection, after: 0)
        let created = try connection.state(ofStream: Self.wanted.name).created
        let look = StreamLook(Self.wanted, created: created, first.place)
        try first.publish(headers: [], body: [1])
        // One that is on its way may have arrived.
        #expect(code(look, connection) == nil)
        try first.finish()
        #expect(code(look, connection) == nil)
        let second = try publisher(connection, after: 1)
        try second.publish(headers: [], body: [2])
        try second.finish()
        #expect(code(look, connection) == .streamMoved)
        #expect(code(StreamLook(Self.wanted, created: created, second.place), connection) == nil)
    }
}
