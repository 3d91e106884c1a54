import AgentProtocol
import FoundationEssentials
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import NATSStreams

/// Readers of a stream on real brokers.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct StreamReaderTests: NotesStream {
    /// A publisher that doesn't say so, or whose word was lost.
    @Test(arguments: NATSServer.programs)
    func findsWhatNobodyHasAnnounced(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        let reader = try reader(connection, from: 1, patience: .milliseconds(50))
        #expect(try publish(2, connection, announcing: false) == 2)
        #expect(try reader.next(within: .ample)?.sequence == 1)
        #expect(try reader.next(within: .ample)?.sequence == 2)
    }

    /// Anybody with the home's credentials may say so.
    @Test(arguments: NATSServer.programs)
    func waitsForWhatWasAnnouncedAndIsNotThere(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        let reader = try reader(connection, from: 1)
        for text in ["9223372036854775807", "18446744073709551615", "-1", "", "x", "7"] {
            try connection.publish(OutgoingMessage("gs.Notes.published", body: Array(text.utf8)))
        }
        #expect(try reader.next(within: .milliseconds(50)) == nil)
        #expect(try publish(1, connection) == 1)
        #expect(try reader.next(within: .ample)?.sequence == 1)
    }

    @Test(arguments: NATSServer.programs)
    func goesOnAfterMessagesThatWereDropped(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        var configuration = Self.configuration
        configuration.maxBytes = 2000
        try connection.ensureStream(configuration)
        #expect(try publish(100, connection) == 100)
        let first = try connection.state(ofStream: "GS_Notes").first
        #expect(first > 1)
        let reader = try reader(connection, from: 1)
        #expect(try reader.next(within: .ample)?.sequence == first)
        // Also those that are dropped while it reads.
        #expect(try publish(100, connection, after: 100) == 200)
        var last = first
        while last < 200, let found = try reader.next(within: .ample) {
            #expect(found.sequence > last)
            last = found.sequence
        }
        #expect(last == 200)
    }

    @Test(arguments: NATSServer.programs)
    func noticesAStreamThatHasGoneBack(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        #expect(try publish(3, connection) == 3)
        let reader = try reader(connection, from: 3, patience: .milliseconds(50))
        #expect(try reader.next(within: .ample)?.sequence == 3)
        _ = try connection.request(OutgoingMessage("$JS.API.STREAM.DELETE.GS_Notes"))
        try connection.ensureStream(Self.configuration)
        // It has a message of that number again.
        #expect(try publish(3, connection, announcing: false) == 3)
        #expect {
            while try reader.next(within: .milliseconds(100)) == nil {}
        } throws: { ($0 as? NATSError)?.code == .streamBroken }
    }

    /// A broker closes a connection to which it can't send what was asked for.
    @Test func requestsOneLargeMessageAtATime() throws {
        let server = try NATSServer(try #require(NATSServer.programs.last))
        let broker = try connect(server)
        let listening = MonotonicSemaphore()
        let most = Mutex(0)
        let body = [UInt8](repeating: 0x61, count: 700_000)
        let info =
            #"{"config":{"name":"GS_Notes"},"created":"2026-01-01T00:00:00Z","#
            + #""state":{"messages":20,"bytes":1,"first_seq":1,"last_seq":20,"consumer_count":0}}"#
        let thread = try SystemThread(name: "broker") {
            guard let requests = try? broker.subscribe("api.STREAM.>"), (try? broker.flush()) != nil else { return }
            listening.signal()
            var waiting: [NATSMessage] = []
            var answered = 0
            while answered < 20 {
                // Whatever is asked for at the same time arrives before the answer.
                if let found = try? requests.next(within: .milliseconds(waiting.isEmpty ? 20_000 : 30)) {
                    if found.subject.contains("INFO") {
                        try? broker.publish(OutgoingMessage(found.reply ?? "", body: Array(info.utf8)))
                    } else {
                        waiting.append(found)
                        most.withLock { $0 = max($0, waiting.count) }
                    }
                    continue
                }
                guard !waiting.isEmpty else { return }
                let request = waiting.removeFirst()
                answered += 1
                let data = Data(body).base64EncodedString()
                let number = request.json?.integer("seq") ?? 0
                let time = "2026-01-01T00:00:00Z"
                let text =
                    #"{"message":{"subject":"gs.Notes.changes","seq":\#(number),"data":"\#(data)","time":"\#(time)"}}"#
                try? broker.publish(OutgoingMessage(request.reply ?? "", body: Array(text.utf8)))
            }
        }
        listening.wait()
        var options = try ConnectionOptions(servers: [ServerAddress(server.url)], name: "test")
        options.streamAPI = ("api", "GS_Notes")
        let connection = try NATSConnection(options)
        let reader = try reader(connection, from: 1)
        for number in 1...20 {
            let found = try #require(try reader.next(within: .ample))
            #expect(found.sequence == UInt64(number) && found.message.body == body)
        }
        #expect(thread.join(within: .ample))
        #expect(most.withLock { $0 } == 1)
    }

    @Test func readsAMessagesTime() {
        #expect(StoredMessage.nanoseconds("1970-01-01T00:00:01Z") == 1_000_000_000)
        #expect(StoredMessage.nanoseconds("2023-11-14T22:13:20.000000005Z") == 1_700_000_000_000_000_005)
        #expect(StoredMessage.nanoseconds("2023-11-14T22:13:20.5Z") == 1_700_000_000_500_000_000)
        for text in ["", "Z", "2023-11-14T22:13:20", "2023-11-14T22:13:20.Z", "2023-11-14T22:13:20.1234567890Z"] {
            #expect(StoredMessage.nanoseconds(text) == nil)
        }
    }
}
