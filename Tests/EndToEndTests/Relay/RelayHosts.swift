import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// A running `groupstore-relay`, whose JSON lines are read.
final class RelayProcess {
    let process: RunningProcess

    init(_ arguments: [Word], runtime: FilePath, environment: [String: String] = [:]) throws {
        process = try RunningProcess(
            Programs.relay, arguments + ["--json"],
            environment: [
                "XDG_RUNTIME_DIR": runtime.string, "XDG_CACHE_HOME": runtime.appending("cache").string,
                "XDG_STATE_HOME": runtime.appending("state").string,
            ].merging(environment) { $1 })
    }

    /// Returns the next event of this type, and skips those before it.
    @discardableResult
    func event(_ type: String, where condition: (JSONObject) -> Bool = { _ in true }) throws -> JSONObject {
        var found: JSONObject?
        try process.line { line in
            guard let object = JSONObject(line: line), object.type == type, condition(object) else { return false }
            found = object
            return true
        }
        return found ?? [:]
    }

    /// Ends the program in an orderly way.
    @discardableResult
    func stop() throws -> FinishedProcess {
        process.signal(SIGTERM)
        return try process.wait()
    }
}

/// A home and a follower's host, as two directories, with a broker between them.
final class RelayHosts {
    let server: NATSServer
    private let scratch: TemporaryDirectory
    let home: FilePath
    let replica: FilePath
    let key: FilePath

    /// More environment variables of the relays.
    var environment: [String: String] = [:]

    var runtime: FilePath { scratch.path.appending("run") }
    var group: FilePath { scratch.path.appending("group") }

    /// Creates a home with one row, and with a history unless `keepsHistory` is false.
    init(_ program: FilePath, configuration: String = "", keepsHistory: Bool = true) throws {
        server = try NATSServer(program, configuration: configuration)
        scratch = try TemporaryDirectory()
        home = scratch.path.appending("Notes.sqlite")
        replica = scratch.path.appending("group").appending("Notes.sqlite")
        key = scratch.path.appending("key")
        let directory = try Directory(scratch.path)
        for name: FilePath.Component in ["run", "group"] { try directory.makeDirectory(name, mode: 0o700) }
        let file = try directory.open("key", flags: O_WRONLY | O_CREAT, mode: 0o600)
        try file.write(Array("0123456789abcdef0123456789abcdef\n".utf8), at: 0)
        try sqlite(
            home,
            """
            PRAGMA journal_mode = WAL;
            CREATE TABLE Note (id INTEGER PRIMARY KEY, title TEXT, body BLOB);
            INSERT INTO Note VALUES (0, 'first', x'00ff');
            """)
        guard keepsHistory else { return }
        let done = try groupstore("history", "enable", Word(home))
        guard done.status == 0 else { throw Unexpected(done.errors) }
    }

    func path(_ name: FilePath.Component) -> FilePath { scratch.path.appending(name) }

    func publish(_ store: FilePath? = nil, options: [Word] = [], key: FilePath? = nil) throws -> RelayProcess {
        try RelayProcess(
            [
                "publish", Word(store ?? home), "--server", Word(server.url), "--stream", "Notes", "--key",
                Word(key ?? self.key),
            ]
                + options,
            runtime: runtime, environment: environment)
    }

    func follow(
        in group: FilePath? = nil, server url: String? = nil, options: [Word] = [], key: FilePath? = nil
    ) throws -> RelayProcess {
        try RelayProcess(
            [
                "follow", Word(group ?? self.group), "--server", Word(url ?? server.url), "--stream", "Notes",
                "--follower", "other", "--key", Word(key ?? self.key),
            ] + options, runtime: runtime, environment: environment)
    }

    /// Adds rows to the home, and returns the token of its last change.
    @discardableResult
    func write(_ sql: String, to store: FilePath? = nil) throws -> String {
        try sqlite(store ?? home, sql)
        return try token(store ?? home)
    }

    func token(_ store: FilePath) throws -> String {
        try sqlite(
            store,
            """
            SELECT 'h1.' || identifier || '.' || coalesce(
                (SELECT number || '.' || printf('%x', nonce) FROM GS_CHANGE ORDER BY number DESC LIMIT 1),
                trimmed || '.' || printf('%x', trimmed_nonce))
            FROM GS_HISTORY
            """
        ).split(separator: "\n").last.map(String.init) ?? ""
    }

    /// The app's rows and the history's of a store, as text.
    func content(_ store: FilePath) throws -> String {
        try sqlite(
            store,
            "SELECT id, quote(title), quote(body) FROM Note ORDER BY id; SELECT number, nonce, key FROM GS_CHANGE;")
    }

    /// Waits until the follower has reached the home's last change, and returns true if both are equal then.
    func areEqual(_ follower: RelayProcess) throws -> Bool {
        let token = try self.token(home)
        try follower.event("caught_up") { $0.string("upto") == token }
        return try content(home) == content(replica)
    }

    /// Publishes a message beside the relay, as anybody may who has the credentials.
    func publishForgery(_ headers: String, _ body: String) throws {
        let script = """
            import socket, sys
            headers = ("NATS/1.0\\r\\n" + sys.argv[2] + "\\r\\n\\r\\n").encode()
            body = sys.argv[3].encode()
            connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
            stream = connection.makefile("rwb")
            stream.readline()
            stream.write(b'CONNECT {"verbose":false,"headers":true}\\r\\n')
            stream.write(b"HPUB gs.Notes.changes %d %d\\r\\n" % (len(headers), len(headers) + len(body)))
            stream.write(headers + body + b"\\r\\nPING\\r\\n")
            stream.flush()
            while not stream.readline().startswith(b"PONG"):
                pass
            """
        let done = try run("python3", ["-c", Word(script), "\(server.port)", Word(headers), Word(body)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
    }

    /// Starts a link to the broker that ends each connection after so many bytes from the broker, and returns it with
    /// its URL.
    func unsteadyLink(bytes: Int) throws -> (process: RunningProcess, url: String) {
        let script = """
            import socket, sys, threading
            listener = socket.create_server(("127.0.0.1", 0))
            print(listener.getsockname()[1], flush=True)
            def carry(source, sink, left):
                try:
                    while left > 0:
                        data = source.recv(min(65536, left))
                        if not data:
                            break
                        sink.sendall(data)
                        left -= len(data)
                    source.shutdown(socket.SHUT_RDWR)
                    sink.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
                for ends in ((near, far, 1 << 60), (far, near, int(sys.argv[2]))):
                    threading.Thread(target=carry, args=ends, daemon=True).start()
            """
        let process = try RunningProcess("python3", ["-c", Word(script), "\(server.port)", "\(bytes)"])
        guard let port = try process.line() else { throw Unexpected("the link doesn't start") }
        return (process, "nats://127.0.0.1:\(port)")
    }
}
