import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The names of stores, paths and processes are escaped in output for people.
@Suite(.ownThreads) struct EscapeTests {
    private static let bad = "a\u{1B}]0;title\u{07}\u{1B}[31m\nINJECTED line\r\u{9B}31m\u{202E}\u{2066}\u{2028}"

    private func expectPlain(_ text: String, _ what: String) {
        let raw = text.unicodeScalars.filter { $0 != "\n" && !PrintableText.isPlain(String($0)) }
        let forged = text.split(separator: "\n").filter { $0.hasPrefix("INJ") }
        #expect(raw.isEmpty && forged.isEmpty, "\(what): \(text.debugDescription)")
    }

    @Test func namesCannotControlTheTerminal() throws {
        let places = try Places()
        let name = "n\u{1B}[31m\nINJ\u{202E}.sqlite"
        let store = places.group.appending(name)
        let table = Self.bad.replacing("\"", with: "\"\"")
        try sqlite(
            places.group.appending("plain"),
            "PRAGMA journal_mode = WAL; CREATE TABLE \"\(table)\" (id INTEGER PRIMARY KEY, \"c\(table)\")")
        try run("mv", [Word(places.group.appending("plain")), Word(store)])
        let legacy = places.legacy.appending(name)
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(places.group), "--legacy", Word(legacy)],
            socket: places.scratch("agent.sock"))
        func said(_ words: Word...) throws -> FinishedProcess {
            try run(Programs.groupstore, words, environment: agent.environment)
        }
        expectPlain(try said("history", "enable", Word(store)).output, "enable")
        let watch = try RunningProcess(Programs.groupstore, ["watch", Word(store)], environment: agent.environment)
        try watch.line(.errors) { $0.contains("watching") }
        let insert = """
            import sqlite3, sys
            store = sqlite3.connect(sys.argv[1], isolation_level=None)
            store.execute("BEGIN")
            store.execute("UPDATE GS_AUTHOR SET name = ?", [sys.argv[2]])
            store.execute('INSERT INTO "%s" VALUES (1, 2)' % sys.argv[2].replace('"', '""'))
            store.execute("COMMIT")
            """
        try run("python3", ["-c", Word(insert), Word(store), Word(Self.bad)])
        let first = try watch.line { $0.contains("change") }
        expectPlain(first, "watch")
        for words: [Word] in [
            ["status"], ["status", Word(places.group)], ["inspect", Word(store)], ["changes", Word(store)],
            ["history", "show", Word(store)], ["doctor"],
            ["migrate", Word(store), "--model", Word(places.scratch(Self.bad.replacing("/", with: "")))],
            ["relocate", Word(store), Word(places.scratch("nowhere"))], ["recover", Word(places.group)],
        ] {
            let done = try run(Programs.groupstore, words, environment: agent.environment)
            expectPlain(done.output + done.errors, "\(words)")
        }
        // JSON output keeps the exact text.
        let changes = try said("changes", "--json", Word(store))
        #expect(changes.objects.contains { $0.string("table") == Self.bad && $0.string("author") == Self.bad })

        try makeStore(places.scratch("other.sqlite"), rows: 3)
        try run("mv", [Word(places.scratch("other.sqlite")), Word(legacy)])
        let conflict = try run(
            Programs.groupstore, ["relocate", Word(legacy), Word(places.group)],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/x"])
        #expect(conflict.status == 73 || conflict.status == 75)
        expectPlain(conflict.output + conflict.errors, "conflict")
        let log = try agent.stop().errors
        #expect(!log.isEmpty)
        expectPlain(log, "log")
    }

    /// A message that a process sends through the agent is escaped, including its program's name.
    @Test func escapesAProgramsName() throws {
        let places = try Places()
        let agent = try AgentProcess(places, legacy: [])
        let client = """
            import ctypes, json, socket, sys
            ctypes.CDLL(None).prctl(15, b"\\x1b[31m\\nINJ\\x07")
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(sys.argv[1])
            lines = connection.makefile("r")
            lines.readline()
            for op in ["subscribe", "present"]:
                connection.sendall((json.dumps({"op": op, "store": sys.argv[2]}) + "\\n").encode())
                print(lines.readline(), end="", flush=True)
            sys.stdin.read()
            """
        let process = try RunningProcess(
            "python3", ["-c", Word(client), Word(agent.socket), "\(AgentProcess.group)/Notes.sqlite"])
        for _ in 0..<2 { try process.line { $0.contains("\"ok\":true") } }
        let status = try run(Programs.groupstore, ["status"], environment: agent.environment)
        #expect(status.output.contains("\\u{1b}[31m"))
        expectPlain(status.output, "status")
        #expect(try agent.stop().status == 0)
    }
}
