import TestSupport

@testable import NATSStreams

/// Tests with one stream, of which they have connections, readers and publishers.
protocol NotesStream {}

extension NotesStream {
    static var configuration: StreamConfiguration {
        StreamConfiguration(name: "GS_Notes", subject: "gs.Notes.changes")
    }

    func connect(_ server: NATSServer) throws -> NATSConnection {
        try NATSConnection(ConnectionOptions(servers: [ServerAddress(server.url)], name: "test"))
    }

    func reader(
        _ connection: NATSConnection, from sequence: UInt64, patience: Duration = .seconds(10)
    ) throws -> StreamReader {
        try StreamReader(
            connection, stream: "GS_Notes", news: "gs.Notes.published", from: sequence, patience: patience)
    }

    func publish(
        _ count: Int, _ connection: NATSConnection, after last: UInt64 = 0, announcing: Bool = true
    ) throws -> UInt64 {
        let publisher = try FencedPublisher(
            connection, stream: "GS_Notes", subject: "gs.Notes.changes", after: last)
        for number in 0..<count {
            try publisher.publish(
                headers: [("Gs-Upto", "\(last + UInt64(number) + 1)")], body: Array("body \(number)".utf8))
        }
        try publisher.finish()
        if announcing { try publisher.announce(on: "gs.Notes.published") }
        return publisher.lastSequence
    }
}
