import AgentProtocol
import EndToEndSupport
import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The examples of the protocol's document, played against an agent.
@Suite(.ownThreads, .serialized, .timeLimit(.minutes(60))) struct WireProtocolTests {
    private static let document: String = {
        let path = Programs.source("Documentation/WireProtocol.md")
        return (try? run("cat", [path]).output) ?? ""
    }()

    private static let examples = (try? WireExample.all(in: document)) ?? []

    @Test(arguments: examples) func everyExampleHolds(_ example: WireExample) throws {
        if example.setting.contains("stranger"), geteuid() != 0 { return print("skipped: only root can be a stranger") }
        let stage = try WireStage(example.setting)
        for step in example.steps { try stage.play(step) }
    }

    /// Returns the words in a table's first column.
    private func words(_ heading: String) -> [String] {
        var isInside = false
        var found: [String] = []
        for line in Self.document.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("| \(heading) |") {
                isInside = true
            } else if !line.hasPrefix("|") {
                isInside = false
            } else if isInside, let cell = line.split(separator: "|").first {
                found += cell.matches(of: /`([a-z_]+)`/).map { String($0.1) }
            }
        }
        return found
    }

    private func lines(_ isWanted: (WireExample.Action) -> String?) -> [String] {
        Self.examples.flatMap(\.steps).compactMap { isWanted($0.action) }
    }

    @Test func everyOperationAndEventHasAnExample() throws {
        let sent = lines { if case .send(let text) = $0 { text } else { nil } }
        let received = lines { if case .receive(let text) = $0 { text } else { nil } }
        #expect(sent.count > 40 && received.count > 60)
        for operation in words("op") + ["status", "relocate"] {
            #expect(sent.contains { $0.contains("\"op\":\"\(operation)\"") }, "no example of \(operation)")
        }
        // `HazardTests` has those: whether a `change` comes with them depends on what was committed.
        let untried = ["hazard", "hazard_over"]
        for type in words("type") + words("event") + words("row") where !untried.contains(type) {
            #expect(received.contains { $0.contains("\"type\":\"\(type)\"") }, "no example of \(type)")
        }
        for code in words("code") {
            #expect(received.contains { $0.contains("\"code\":\"\(code)\"") }, "no example of \(code)")
        }
    }

    /// The operations that the agent itself advertises are all documented.
    @Test func everyOperationIsDocumented() throws {
        let stage = try WireStage([])
        let client = try stage.agent.connect()
        try client.send(["id": 1, "op": "fly"])
        let hint = try client.next { $0["id"] == 1 }.object("error")?.string("hint") ?? ""
        let documented = Set(words("op") + ["status", "relocate", "cancel"])
        for operation in hint.split(separator: ", ") {
            #expect(documented.contains(String(operation)), "\(operation) is not in the document")
        }
    }
}

/// An agent with a store and a legacy path, and the clients of one example.
private final class WireStage {
    private let places: Places
    let agent: AgentProcess
    private let isUnauthorized: Bool
    /// True if a step with a `fraction` stands for any number of such lines.
    private let repeatsProgress: Bool
    private var clients: [Int: any WireClient] = [:]
    private var placeholders: Placeholders
    /// Keeps the legacy store open.
    private var models: ModelStores?
    private var holder: RunningProcess?
    /// Keeps the store open all the time. A program that opens, writes and closes the store before the agent reads it
    /// leaves no trace of the tables.
    private let writer: RunningProcess?

    private var store: FilePath { places.group.appending("Notes.sqlite") }
    private var legacy: FilePath { places.legacy.appending("Notes.sqlite") }

    init(_ setting: [String]) throws {
        places = try Places()
        let socket = places.scratch("agent.sock")
        let store = places.group.appending("Notes.sqlite")
        if setting.contains("absent") {
            writer = nil
        } else {
            try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE ZNOTE (text); CREATE TABLE ZTAG (text)")
            writer = try sqliteShell(store)
        }
        var group = places.group
        if setting.contains("unwatchable") {
            // No file system accepts a name of this length.
            group = places.scratch(String(repeating: "a", count: 300))
        }
        isUnauthorized = setting.contains("stranger")
        repeatsProgress = setting.contains("progress")
        let modelKey = setting.contains("model") ? ", model: '\(try Self.bundle(places))'" : ""
        let apps = setting.contains("app") ? "apps: [{ app: \(places.legacy)/app }]" : ""
        let limit = setting.compactMap { $0.wholeMatch(of: /connections-per-user=([0-9]+)/)?.1 }.first
        let configuration = places.scratch("config.yaml")
        try write(
            """
            socket: { connections-per-user: \(limit ?? "100")\(isUnauthorized ? ", allow-uids: [65533]" : "") }
            groups:
              - id: group.com.example.notes
                directory: \(group)
                stores: [{ name: Notes.sqlite, legacy: [\(places.legacy)/Notes.sqlite], settle: 1ms\(modelKey) }]
                \(apps)

            """, to: configuration)
        if isUnauthorized { try TestSupport.run("chmod", ["755", Word(places.scratch("."))]) }
        placeholders = Placeholders([
            "group": .string(places.group.string), "legacy": .string(places.legacy.string),
        ])
        agent = try AgentProcess(["--config", Word(configuration)], socket: socket)
    }

    /// Creates a model with two versions.
    private static func bundle(_ places: Places) throws -> FilePath {
        let attribute = #"<attribute name="title" optional="YES" attributeType="String"/>"#
        return try ModelBundle.make(
            in: places.scratch("."),
            [
                ("Notes", #"<entity name="Note">\#(attribute)</entity>"#),
                ("Notes 2", #"<entity name="Folder"/><entity name="Note">\#(attribute)</entity>"#),
            ])
    }

    func play(_ step: WireExample.Step) throws {
        switch step.action {
        case .program(let words): try perform(words, step)
        case .send(let text):
            let client = try client(step)
            for number in 1...step.count {
                placeholders["n"] = .integer(Int64(number))
                try client.send(bytes(text))
            }
        case .receive(let text):
            let client = try client(step, showsGreeting: text.contains("\"hello\"") || isRefused(text))
            for number in 1...step.count {
                placeholders["n"] = .integer(Int64(number))
                try expect(text, from: client, step)
            }
        case .receiveEnd: #expect(try client(step).next() == nil, "line \(step.line): the connection goes on")
        }
    }

    /// Returns true for a client that the agent rejects before any greeting.
    private func isRefused(_ text: String) -> Bool {
        text.contains("too_many_connections") || text.contains("not_permitted")
    }

    private func client(_ step: WireExample.Step, showsGreeting: Bool = false) throws -> any WireClient {
        if let known = clients[step.client] { return known }
        let client: any WireClient =
            try isUnauthorized ? UnauthorizedClient(agent.socket, places) : PlainClient(agent.socket)
        clients[step.client] = client
        if !showsGreeting { _ = try client.next() }
        return client
    }

    private func bytes(_ text: String) throws -> [UInt8] {
        if let match = text.wholeMatch(of: /([0-9]+) bytes without a newline/), let count = Int(match.1) {
            return [UInt8](repeating: 0x78, count: count)
        }
        guard let value = try? JSONValue(parsing: Array(text.utf8)), case .object(let line) = placeholders.filled(value)
        else { return Array(text.utf8) + [0x0A] }
        return Array(line.text.utf8) + [0x0A]
    }

    /// Returns true for a line that may come before the expected one: a warning of the two programs that have the store
    /// open, of progress one of the same kind with another fraction, or one of a copy before the migration.
    private func isAside(_ object: JSONObject, of text: String, _ step: WireExample.Step) -> Bool {
        object.type == "hazard" || object.type == "hazard_over"
            || repeatsProgress && object["fraction"] != nil
                && !text.contains("\"type\":\"\(object.type ?? "")\"") && step.count == 1
    }

    private func expect(_ text: String, from client: any WireClient, _ step: WireExample.Step) throws {
        var next = try client.next()
        while let line = next, let object = JSONObject(line: String(decoding: line, as: UTF8.self)),
            isAside(object, of: text, step)
        {
            next = try client.next()
        }
        guard let line = next else { throw Unexpected("line \(step.line): the connection ended") }
        let expected = try JSONValue(parsing: Array(text.utf8))
        guard placeholders.match(expected, try JSONValue(parsing: line)) else {
            let unread = clients.sorted { $0.key < $1.key }.map { "client \($0.key): \($0.value.unreadLines())" }
            throw Unexpected(
                "line \(step.line): expected \(text), came \(String(decoding: line, as: UTF8.self)); unread: \(unread)")
        }
    }

    // MARK: Other programs

    private func perform(_ words: String, _ step: WireExample.Step) throws {
        if let match = words.wholeMatch(of: /commits ([0-9]+) times (.+)/) {
            // The agent tells of each, and not of several at once.
            let observer = try agent.connect()
            for _ in 1...(Int(match.1) ?? 1) {
                try writer?.execute(String(match.2))
                try observer.send(["id": 1, "op": "sync", "store": "group.com.example.notes/Notes.sqlite"])
                try observer.next { $0["id"] == 1 }
            }
        } else if let match = words.wholeMatch(of: /commits (.+)/) {
            try writer?.execute(String(match.1))
        } else if words == "enables the store's history" {
            let done = try groupstore("history", "enable", Word(store))
            guard done.status == 0 else { throw Unexpected("history: \(done.errors)") }
        } else if words == "forgets all but the last change" {
            let done = try groupstore("history", "purge", "--keep", "1", Word(store))
            guard done.status == 0 else { throw Unexpected("history: \(done.errors)") }
        } else if words == "opens that store" {
            holder = try sqliteShell(places.legacy.appending("Diary.sqlite"))
        } else if words == "puts a store of the older version at the legacy place"
            || words == "puts a large store of the older version at the legacy place"
        {
            let elsewhere = places.scratch("Elsewhere.sqlite")
            let model = places.scratch("Notes.xcdatamodeld")
            let made = try groupstore("create", Word(elsewhere), "--model", Word(model), "--version", "Notes")
            guard made.status == 0 else { throw Unexpected("create: \(made.errors)") }
            try sqlite(elsewhere, "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (1, 1, 1, 'old')")
            if words.contains("large") {
                // Their migration takes a second or more.
                try sqlite(
                    elsewhere,
                    "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
                        + "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) SELECT i, 1, 1, hex(zeroblob(100)) FROM n; "
                        + "UPDATE Z_PRIMARYKEY SET Z_MAX = 300000")
            }
            try TestSupport.run("mv", [Word(elsewhere), Word(legacy)])
        } else if words == "keeps the legacy store open" {
            // The store is created elsewhere, so that it arrives complete and open.
            let elsewhere = places.scratch("Elsewhere.sqlite")
            try sqlite(elsewhere, "CREATE TABLE ZNOTE (text); INSERT INTO ZNOTE VALUES ('old')")
            holder = try sqliteShell(elsewhere)
            try TestSupport.run("mv", [Word(elsewhere), Word(legacy)])
        } else if words == "closes the legacy store" {
            holder?.closeInput()
            try holder?.wait()
        } else if words == "puts another store at the legacy place" {
            try writer?.execute("INSERT INTO ZNOTE VALUES ('the group''s')")
            try clients.values.forEach { client in _ = try client.next() }
            let elsewhere = places.scratch("Elsewhere.sqlite")
            try sqlite(elsewhere, "CREATE TABLE ZNOTE (text); INSERT INTO ZNOTE VALUES ('another')")
            try TestSupport.run("mv", [Word(elsewhere), Word(legacy)])
        } else if words == "removes the store" {
            try TestSupport.run("rm", [Word(store)])
        } else if words.hasPrefix("makes a Core Data store of Notes at <group>/Tasks.sqlite") {
            let tasks = places.group.appending("Tasks.sqlite")
            let stores = try ModelStores()
            try stores.makeOld(tasks)
            models = stores
            placeholders["model"] = .string(stores.model.string)
            placeholders["tasks"] = try identity(tasks)
            placeholders["bundle"] = try identity(stores.model)
            placeholders["directory"] = try identity(places.group)
        } else if words == "puts a directory at <legacy>/app, of which a file stays there when it is moved" {
            let made = places.scratch("app")
            try TestSupport.run("mkdir", [Word(made)])
            try TestSupport.run("mv", [Word(made), Word(places.legacy)])
            _ = try agent.appRow { $0 == "moved" }
            _ = try places.leaveFileBehind()
            let deadline = Deadline(after: .ample)
            while try agent.appRow(where: { $0 == "moved" })["left_behind"] == nil, !deadline.hasPassed {}
        } else if words.hasPrefix("makes a store at <legacy>/Diary.sqlite") {
            let diary = places.legacy.appending("Diary.sqlite")
            try sqlite(diary, "CREATE TABLE ZNOTE (text); INSERT INTO ZNOTE VALUES ('old')")
            placeholders["source"] = try identity(diary)
            placeholders["directory"] = try identity(places.group)
        } else {
            throw Unexpected("line \(step.line): nobody knows how to do that: \(words)")
        }
    }

    private func identity(_ path: FilePath) throws -> JSONValue {
        guard let identity = FileStatus(following: path)?.identity else { throw Unexpected("\(path) is not there") }
        return .object(["dev": .string(String(identity.device)), "ino": .string(String(identity.inode))])
    }
}

/// Sends bytes and receives lines.
private protocol WireClient: AnyObject {
    func send(_ bytes: [UInt8]) throws
    /// Returns nil at the connection's end.
    func next() throws -> [UInt8]?
    /// Returns the lines that have come and were not asked for, for a failure's message.
    func unreadLines() -> [String]
}

private final class PlainClient: WireClient {
    private let socket: Descriptor
    private var lines = LineBuffer()

    init(_ path: FilePath) throws { socket = try UnixSocket.connect(to: path) }

    func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty { rest = rest.dropFirst(try UnixSocket.send(rest, on: socket.raw)) }
    }

    func next() throws -> [UInt8]? { try next(within: 60_000) }

    func unreadLines() -> [String] {
        var found: [String] = []
        while let line = try? next(within: 100) { found.append(String(decoding: line, as: UTF8.self)) }
        return found
    }

    private func next(within milliseconds: CInt) throws -> [UInt8]? {
        while true {
            if let line = try lines.next() { return line }
            var wait = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
            guard poll(&wait, 1, milliseconds) > 0 else { throw Unexpected("no line in time") }
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = recv(socket.raw, &buffer, buffer.count, 0)
            if count <= 0 { return nil }
            lines.append(buffer[..<count])
        }
    }
}

/// A client of another user that only listens.
private final class UnauthorizedClient: WireClient {
    private let process: RunningProcess

    init(_ socket: FilePath, _ places: Places) throws {
        let script = """
            import socket, sys
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(sys.argv[1])
            for line in connection.makefile(): print(line, end="", flush=True)
            """
        process = try RunningProcess(
            "setpriv",
            [
                "--reuid=65534", "--regid=65534", "--clear-groups", "env", "PATH=/usr/bin:/bin", "python3", "-c",
                Word(script), Word(socket),
            ])
    }

    func send(_ bytes: [UInt8]) throws { throw Unexpected("a stranger only listens") }

    func unreadLines() -> [String] { [] }

    func next() throws -> [UInt8]? {
        if let line = try process.line() { return Array(line.utf8) }
        let errors = try process.wait().errors
        guard errors.isEmpty else { throw Unexpected(errors) }
        return nil
    }
}
