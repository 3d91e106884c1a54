import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import NATSStreams

/// Streams on real brokers.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct MessageStreamTests: NotesStream {
    @Test(arguments: NATSServer.programs)
    func keepsAndReadsMessagesInOrder(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        try connection.ensureStream(Self.configuration)
        #expect(try connection.lastMessage(ofStream: "GS_Notes", subject: "gs.Notes.changes") == nil)
        #expect(try publish(1000, connection) == 1000)

        let last = try #require(try connection.lastMessage(ofStream: "GS_Notes", subject: "gs.Notes.changes"))
        #expect(last.sequence == 1000)
        #expect(last.headers["Gs-Upto"] == "1000")
        #expect(try connection.message(500, ofStream: "GS_Notes")?.body == Array("body 499".utf8))
        #expect(try connection.message(1001, ofStream: "GS_Notes") == nil)
        #expect(try connection.state(ofStream: "GS_Notes").last == 1000)

        let reader = try reader(connection, from: 3)
        for number in 3...1000 {
            let found = try #require(try reader.next(within: .ample))
            #expect(found.sequence == UInt64(number))
            #expect(found.message.headers["Gs-Upto"] == "\(number)")
            if number == 1000 { #expect(found.pending == 0) }
        }
        #expect(try reader.next(within: .milliseconds(50)) == nil)
        #expect(try publish(1, connection, after: 1000) == 1001)
        #expect(try reader.next(within: .ample)?.sequence == 1001)
    }

    /// The library measures its limits by the clock of the day: after that was set back, they last longer.
    @Test func endsACallWhoseLimitFails() throws {
        let server = try NATSServer(try #require(NATSServer.programs.last))
        var options = try ConnectionOptions(servers: [ServerAddress(server.url)], name: "test")
        options.watchdog = try Watchdog(rest: .milliseconds(10), grace: .seconds(1)) { call, _ in
            Issue.record("\(call) was given up")
        }
        let connection = try NATSConnection(options)
        let subscription = try connection.subscribe("nothing")
        let error = #expect(throws: NATSError.self) {
            try connection.watching("too long", limit: .zero) { try subscription.next(within: .seconds(3600)) }
        }
        #expect(error?.isTransient == true && connection.isClosed)
        try NATSConnection(options).flush()
    }

    @Test(arguments: NATSServer.programs)
    func storesNothingAfterSomebodyElsePublished(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        let first = try FencedPublisher(connection, stream: "GS_Notes", subject: "gs.Notes.changes", after: 0)
        _ = try publish(1, connection)
        #expect {
            for _ in 0..<300 { try first.publish(headers: [], body: [1, 2, 3]) }
            try first.finish()
        } throws: { error in
            (error as? NATSError)?.code == .streamMoved
        }
        #expect(try connection.state(ofStream: "GS_Notes").last == 1)
    }

    @Test(arguments: NATSServer.programs)
    func rejectsAStreamThatOthersMayEmpty(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        let request = #"{"name":"GS_Notes","subjects":["gs.Notes.changes"],"storage":"file","retention":"limits"}"#
        _ = try connection.request(OutgoingMessage("$JS.API.STREAM.CREATE.GS_Notes", body: Array(request.utf8)))
        #expect { try connection.ensureStream(Self.configuration) } throws: { error in
            (error as? NATSError)?.code == .streamDiffers
        }
    }

    /// Somebody with more permissions has changed the stream, or deleted it, while a publisher is connected.
    @Test(arguments: NATSServer.programs, [#""no_ack":true"#, #""republish":{"src":">","dest":"copies.>"}"#, "DELETE"])
    func noticesAStreamThatSomebodyChanged(program: FilePath, change: String) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        #expect(try connection.checkedState(Self.configuration).last == 0)
        let configuration = """
            {"name":"GS_Notes","subjects":["gs.Notes.changes"],"storage":"file","retention":"limits","discard":"old",\
            "max_msgs":-1,"max_bytes":-1,"max_consumers":-1,"num_replicas":1,"deny_delete":true,"deny_purge":true,\
            \(change)}
            """
        func ask(_ operation: String, _ body: String = "") throws {
            let request = OutgoingMessage("$JS.API.STREAM.\(operation).GS_Notes", body: Array(body.utf8))
            #expect(try connection.request(request).json?.object("error") == nil)
        }
        if change == "DELETE" {
            try ask("DELETE")
        } else if change.contains("republish") {
            // Older brokers don't change it, and take it for a new stream.
            try ask("DELETE")
            try ask("CREATE", configuration)
        } else {
            try ask("UPDATE", configuration)
        }
        let expected: NATSError.Code = change == "DELETE" ? .noStream : .streamDiffers
        #expect { try connection.checkedState(Self.configuration) } throws: { error in
            (error as? NATSError)?.code == expected
        }
    }

    /// A consumer can deliver a stream's messages into any inbox. They are no confirmations.
    @Test(arguments: NATSServer.programs)
    func takesNoDeliveryForAConfirmation(program: FilePath) throws {
        let server = try NATSServer(program)
        var options = try ConnectionOptions(servers: [ServerAddress(server.url)], name: "test")
        options.inboxPrefix = "_INBOX.gs.Notes.home"
        let connection = try NATSConnection(options)
        try connection.ensureStream(Self.configuration)
        let publisher = try FencedPublisher(connection, stream: "GS_Notes", subject: "gs.Notes.changes", after: 0)
        #expect(publisher.inbox.hasPrefix("_INBOX.gs.Notes.home."))
        let consumer =
            #"{"stream_name":"GS_Notes","config":{"ack_policy":"none","deliver_policy":"all","#
            + #""deliver_subject":"\#(publisher.inbox).1"}}"#
        let made = try connection.request(
            OutgoingMessage("$JS.API.CONSUMER.CREATE.GS_Notes", body: Array(consumer.utf8)))
        #expect(made.json?.object("error") == nil)
        for _ in 0..<20 {
            try publisher.publish(headers: [("Gs-Upto", "1")], body: [1])
            try publisher.finish()
        }
        #expect(publisher.lastSequence == 20)
    }

    @Test(arguments: NATSServer.programs)
    func reportsABrokerThatIsGoneOrStopped(program: FilePath) throws {
        let server = try NATSServer(program)
        var options = ConnectionOptions(servers: [try ServerAddress(server.url)], name: "test")
        options.timeout = .milliseconds(300)
        let connection = try NATSConnection(options)
        try connection.ensureStream(Self.configuration)
        try server.suspend()
        #expect { try connection.state(ofStream: "GS_Notes") } throws: { error in
            (error as? NATSError)?.code == .timedOut
        }
        server.resume()
        try server.kill()
        let subscription = try? connection.subscribe("gs.Notes.snapshot")
        #expect(throws: NATSError.self) {
            while true { _ = try subscription?.next(within: .ample) ?? { throw NATSError(.lost, "gone") }() }
        }
        #expect { try NATSConnection(options) } throws: { error in
            (error as? NATSError)?.code == .unreachable
        }
    }

    @Test(arguments: NATSServer.programs)
    func endsAWaitWhenTheConnectionIsClosed(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        let subscription = try connection.subscribe("gs.Notes.ack.*")
        _ = try SystemThread(name: "close") { connection.close() }
        #expect { while true { _ = try subscription.next(within: .ample) } } throws: { error in
            (error as? NATSError)?.code == .lost
        }
    }

    @Test(arguments: NATSServer.programs)
    func requestsFailAtOnceWithoutAnybodyToAnswer(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        #expect { try connection.request(OutgoingMessage("gs.Notes.snapshot")) } throws: { error in
            (error as? NATSError)?.code == .noJetStream
        }
    }

    @Test(arguments: NATSServer.programs)
    func saysThatNobodyListens(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        let subscription = try connection.subscribe("answers.*")
        try connection.publish(OutgoingMessage("gs.Notes.snapshot", reply: "answers.1"))
        #expect { try subscription.next(within: .ample) } throws: { ($0 as? NATSError)?.code == .noJetStream }
        // The subscription goes on.
        try connection.publish(OutgoingMessage("answers.2", body: [7]))
        #expect(try subscription.next(within: .ample)?.body == [7])

        let publisher = try FencedPublisher(connection, stream: "GS_Notes", subject: "gs.Notes.changes", after: 0)
        try publisher.publish(headers: [], body: [])
        #expect { try publisher.finish() } throws: { error in
            (error as? NATSError)?.code == .noJetStream && "\(error)".contains("no stream takes the subject")
        }
    }

    @Test(arguments: NATSServer.programs)
    func saysWhichCredentialsAreRefusedAndWhatIsNotPermitted(program: FilePath) throws {
        let server = try NATSServer(
            program,
            configuration: """
                authorization { users: [
                    { user: relay, password: right, permissions: { publish: ["gs.>"], subscribe: ["_INBOX.>"] } }
                ] }
                """)
        let scratch = try TemporaryDirectory()
        let file = scratch.path.appending("creds")
        var options = ConnectionOptions(servers: [try ServerAddress(server.url)], name: "test")
        options.credentials = file
        options.timeout = .seconds(1)
        func write(_ text: String, mode: UInt32) throws {
            try Directory(scratch.path).removeFile("creds")
            let descriptor = try Directory(scratch.path).open("creds", flags: 0o102, mode: mode)
            try descriptor.write(Array(text.utf8), at: 0)
        }
        func code() -> NATSError.Code? {
            do {
                let connection = try NATSConnection(options)
                try connection.ensureStream(Self.configuration)
                return nil
            } catch {
                return error.code
            }
        }
        #expect(code() == .badFile)
        try write("relay:wrong\n", mode: 0o600)
        #expect(code() == .refused)
        try write("relay:right\n", mode: 0o644)
        #expect(code() == .badFile)
        try write("relay:right\n", mode: 0o600)
        #expect(code() == .notPermitted)
    }

    /// 127.1 is this machine by another name than the ones that are known to be.
    @Test(arguments: NATSServer.programs)
    func requiresTLSWhereOthersCanRead(program: FilePath) throws {
        let server = try NATSServer(program)
        let options = ConnectionOptions(servers: [try ServerAddress("nats://127.1:\(server.port)")], name: "test")
        #expect { try NATSConnection(options) } throws: { error in
            (error as? NATSError)?.code == .insecure
        }
    }

    @Test(arguments: NATSServer.programs)
    func connectsOverTLSToTheNamedServerAlone(program: FilePath) throws {
        let server = try NATSServer(
            program,
            configuration: """
                tls { cert_file: "%DIRECTORY%/server.pem", key_file: "%DIRECTORY%/server.key" }
                """,
            prepare: """
                openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=ca
                openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost
                echo subjectAltName=DNS:localhost > extensions
                openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem \
                    -extfile extensions
                openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout other.key -out other.pem -subj /CN=other
                """)
        func code(_ address: String, authority: FilePath.Component?) throws -> NATSError.Code? {
            var options = ConnectionOptions(servers: [try ServerAddress(address)], name: "test")
            options.authorities = try authority.map { try server.directory.appending($0) }
            do {
                try NATSConnection(options).ensureStream(Self.configuration)
                return nil
            } catch {
                return error.code
            }
        }
        let port = server.port
        #expect(try code("tls://localhost:\(port)", authority: "ca.pem") == nil)
        #expect(try code("nats://localhost:\(port)", authority: "ca.pem") == nil)
        #expect(try code("tls://localhost:\(port)", authority: "other.pem") == .tls)
        #expect(try code("tls://localhost:\(port)", authority: nil) == .tls)
        #expect(try code("nats://127.1:\(port)", authority: "ca.pem") == .tls, "the certificate has another name")
    }

    @Test(arguments: NATSServer.programs)
    func changesTheCopiesOfAStreamThatExists(program: FilePath) throws {
        let server = try NATSServer(program)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        var configuration = Self.configuration
        configuration.replicas = 1
        try connection.ensureStream(configuration)
        configuration.replicas = 3
        #expect { try connection.ensureStream(configuration) } throws: { ($0 as? NATSError)?.code == .noCluster }
    }

    @Test(arguments: NATSServer.programs)
    func saysThatAPublisherIsNotPermitted(program: FilePath) throws {
        let server = try NATSServer(
            program,
            configuration: """
                no_auth_user: anybody
                authorization { users: [
                    { user: anybody, password: p, permissions: { publish: { deny: ["gs.Notes.changes"] } } }
                ] }
                """)
        let connection = try connect(server)
        try connection.ensureStream(Self.configuration)
        #expect { try publish(1, connection) } throws: { error in
            (error as? NATSError)?.code == .notPermitted && "\(error)".contains("gs.Notes.changes")
        }
    }
}
