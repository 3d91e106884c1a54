import AgentProtocol
import Glibc
import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// Which requests a home answers, and where. Anybody may send them who has a follower's credentials.
struct SnapshotServerTests {
    private let key = RelayKey(bytes: Array("0123456789abcdef".utf8))
    private let scratch: TemporaryDirectory
    private let stream: RelayStream
    private let mailbox = PublisherMailbox()
    private static let inbox = "_INBOX.gs.Notes.follower.laptop.a1.begin-1"

    init() throws {
        scratch = try TemporaryDirectory()
        stream = try RelayStream("Notes")
    }

    private func server(key: RelayKey?) throws -> SnapshotServer {
        try SnapshotServer(stream, in: scratch.path, key: key)
    }

    private static let begin: JSONObject = ["op": "begin", "nonce": "5e2f", "follower": "laptop"]
    private static let chunk: JSONObject = ["op": "chunk", "id": "91c2", "index": 0, "size": 524_288]

    private func request(
        _ object: JSONObject, reply: String? = inbox, signedFor signed: String? = nil, with key: RelayKey? = nil
    ) throws -> NATSMessage {
        let body = Array(object.text.utf8)
        var headers: [String: String] = [:]
        if let key {
            let fields = SnapshotRequestDigest.fields(stream, reply: signed ?? reply ?? "")
            headers[RelayHeader.mac] = try key.digest(of: fields, body)
        }
        return NATSMessage(subject: stream.snapshots, reply: reply, headers: headers, body: body)
    }

    private func answer(_ server: SnapshotServer, _ request: NATSMessage) throws -> OutgoingMessage? {
        try server.answer(request, maxPayload: 1 << 20, mailbox: mailbox, look: {})
    }

    private func object(_ answer: OutgoingMessage?) throws -> JSONObject {
        guard case .object(let object) = try JSONValue(parsing: try #require(answer).body) else { return [:] }
        return object
    }

    /// An answer on any other subject would be a request with the home's permissions.
    @Test(
        arguments: [
            "$JS.API.STREAM.DELETE.GS_Notes", "$JS.API.STREAM.PURGE.GS_Notes", "gs.Notes.changes", "gs.Notes.snapshot",
            "gs.Notes.ack.laptop", "_INBOX.gs.Notes.home.abc.1", "_INBOX.gs.Notes.home", "_INBOX", "_INBOX.",
            "_inbox.abc.1", "x_INBOX.abc", "_INBOX.*", "_INBOX.>", "_INBOX.abc..1", "_INBOX.a b", "_INBOX.ä", "", ">",
            "_INBOX." + String(repeating: "a.", count: 200) + "a", nil,
        ] as [String?], [false, true])
    func answersInboxesAlone(reply: String?, withKey: Bool) throws {
        let server = try server(key: withKey ? key : nil)
        for object in [Self.begin, Self.chunk] {
            #expect(try answer(server, request(object, reply: reply, with: withKey ? key : nil)) == nil)
        }
    }

    /// Somebody else may be the home meanwhile.
    @Test func offersNothingBeforeItHasLookedAtTheStream() throws {
        let server = try server(key: nil)
        server.setPublished(HistoryToken("h1.00000000000000000001.1.1"))
        let moved = NATSError(.streamMoved, "moved")
        #expect(throws: moved) {
            try server.answer(request(Self.begin), maxPayload: 1 << 20, mailbox: mailbox, look: { throw moved })
        }
        #expect(mailbox.take(within: .zero).wantsSnapshot == false)
    }

    @Test(arguments: [inbox, "_INBOX.Zx81.4", "_INBOX.Zx81"]) func answersAFollower(reply: String) throws {
        let server = try server(key: nil)
        let first = try answer(server, request(Self.begin, reply: reply))
        #expect(first?.subject == reply)
        #expect(try object(first).string("state") == "preparing")
        let second = try answer(server, request(Self.chunk, reply: reply))
        #expect(second?.headers.first?.value == "unknown_snapshot")
        #expect(second?.body.isEmpty == false)
    }

    @Test func refusesARequestWithoutTheKeysDigest() throws {
        let server = try server(key: key)
        let other = RelayKey(bytes: Array("fedcba9876543210".utf8))
        for object in [Self.begin, Self.chunk] {
            for request in [
                try request(object), try request(object, with: other),
                try request(object, signedFor: "_INBOX.another", with: key),
            ] {
                let answer = try answer(server, request)
                #expect(answer?.headers.first?.value == "wrong_digest")
                #expect(answer?.body.isEmpty == false)
            }
        }
        #expect(mailbox.take(within: .zero).wantsSnapshot == false)
    }

    @Test func aRecordedRequestIsOfNoUse() throws {
        let server = try server(key: key)
        let first = try object(answer(server, request(Self.begin, with: key)))
        #expect(first.string("state") == "challenge")
        var begin = Self.begin
        begin["challenges"] = .array(["other", .string(try #require(first.string("challenge")))])
        let recorded = try request(begin, with: key)
        #expect(try object(answer(server, recorded)).string("state") == "preparing")
        #expect(try object(answer(server, recorded)).string("state") == "challenge")
        // Another process of the home has named another value.
        #expect(try object(answer(self.server(key: key), recorded)).string("state") == "challenge")
    }

    @Test func aValueIsAcceptedForSomeMinutes() throws {
        let start = ContinuousClock.now
        var challenges = RequestChallenges(at: start)
        let value = challenges.issue(at: start)
        func time(_ seconds: Int) -> ContinuousClock.Instant { start.advanced(by: .seconds(seconds)) }
        let isAccepted = [0, 299, 599].map { challenges.accepts([value], nonce: "\($0)", at: time($0)) }
        #expect(isAccepted == [true, true, true])
        let late = challenges.accepts([value], nonce: "600", at: time(601))
        #expect(!late)
        let next = challenges.issue(at: time(602))
        #expect(next != value)
        // A flood of nonces takes no more memory than so many.
        let flood = (0..<30_000).filter { challenges.accepts([next], nonce: "n\($0)", at: time(602)) }
        #expect(flood.count <= 10_001)
    }

    @Test(
        arguments: [
            "", "{", "[]", "null", #"{"op":"begin"}"#, #"{"op":"begin","nonce":5}"#, #"{"op":"begin","nonce":""}"#,
            #"{"op":"rm"}"#, #"{"op":"chunk","id":"91c2","index":-1,"size":524288}"#,
            #"{"op":"chunk","id":"91c2","index":0,"size":9223372036854775807}"#,
            #"{"op":"chunk","id":"91c2","index":99999999999999999999,"size":1e400}"#,
            #"{"op":"begin","nonce":"a","follower":""# + String(repeating: "x", count: 5000) + "\"}",
            String(repeating: "[", count: 4000),
        ])
    func ignoresWhatIsNoRequest(text: String) throws {
        let message = NATSMessage(subject: stream.snapshots, reply: Self.inbox, body: Array(text.utf8))
        #expect(try answer(server(key: nil), message) == nil)
    }

    @Test func keepsSnapshotsInADirectoryOfThisUser() throws {
        _ = try server(key: nil)
        let parent = try Directory(scratch.path)
        let own = try #require(try parent.status("Notes.snapshots"))
        #expect(own.permissions == 0o700 && own.kind == .directory)
        // What others could enter is closed, and what an earlier process left is removed.
        let directory = try parent.directory("Notes.snapshots")
        try directory.setPermissions(0o777)
        _ = try directory.open("snapshot-1", flags: O_WRONLY | O_CREAT, mode: 0o600)
        _ = try directory.open("mine", flags: O_WRONLY | O_CREAT, mode: 0o600)
        _ = try server(key: nil)
        #expect(try directory.status().permissions == 0o700)
        #expect(try directory.names() == ["mine"])
    }

    @Test func makesNoSnapshotWithoutRoomForIt() throws {
        let directory = try Directory(scratch.path)
        let location = StoreLocation(directory: directory, name: try #require(StoreName("Notes.sqlite")))
        let server = try server(key: nil)
        _ = try directory.open("Notes.sqlite", flags: O_RDWR | O_CREAT, mode: 0o600)
        try server.checkRoom(for: location)
        // It has a hole, and takes no room itself.
        let log = try directory.open("Notes.sqlite-wal", flags: O_RDWR | O_CREAT, mode: 0o600)
        let size = Int64(clamping: try directory.fileSystem().available) + 1 << 30
        try log.truncate(to: size, path: scratch.path)
        let error = #expect(throws: SystemError.self) { try server.checkRoom(for: location) }
        #expect(error?.errorCode == "no_space")
    }

    @Test func putsNoSnapshotBehindALink() throws {
        let elsewhere = try TemporaryDirectory()
        _ = try Directory(elsewhere.path).open("snapshot-1", flags: O_WRONLY | O_CREAT, mode: 0o600)
        try Directory(scratch.path).makeSymbolicLink("Notes.snapshots", to: elsewhere.path)
        #expect(throws: SystemError.self) { try server(key: nil) }
        #expect(try Directory(elsewhere.path).names() == ["snapshot-1"])
    }
}
