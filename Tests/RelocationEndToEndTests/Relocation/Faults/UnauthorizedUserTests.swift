import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that a second user of the machine gets no access.
@Suite(.ownThreads) struct UnauthorizedUserTests {
    /// Sends every request of the protocol and an invalid line, and prints the agent's answers.
    private static let clientScript = """
        import json, socket, sys
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        ops = ["subscribe", "unsubscribe", "cancel", "status", "present", "claim", "release", "relocate", "changes", "ack", "sync"]
        lines = [json.dumps({"id": op, "op": op, "store": sys.argv[2], "access": "write"}) for op in ops]
        try:
            connection.sendall(("\\n".join(lines) + "\\n" + "x" * 100_000).encode())
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        said = b""
        try:
            while part := connection.recv(65536):
                said += part
        except ConnectionResetError:
            pass
        sys.stdout.write(said.decode())
        """

    @Test(.enabled(if: geteuid() == 0, "only root can become somebody else"))
    func theSocketRefusesOtherUsers() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        if FileStatus(following: store.path) != nil { try subscriber.next("relocated") }
        // The owner was careless: by their modes alone, the socket and its directory admit anybody.
        try run("chmod", ["755", Word(places.scratch("."))])
        try run("chmod", ["666", Word(agent.socket)])
        let before = try DirectorySnapshot(places.group)

        let reply = try run(
            "setpriv",
            [
                "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", Word(Self.clientScript),
                Word(agent.socket), "\(AgentProcess.group)/Notes.sqlite",
            ])
        #expect(reply.status == 0, "\(reply.errors)")
        #expect(reply.lines.count == 1, "\(reply.output)")
        #expect(reply.objects.first?.bool("ok") == false)
        #expect(reply.objects.first?.object("error")?.string("hint")?.isEmpty == false)
        #expect(!reply.output.contains("Notes.sqlite"))
        #expect(try DirectorySnapshot(places.group) == before)

        try sqlite(places.group.appending("Notes.sqlite"), "INSERT INTO note (text) VALUES ('later')")
        try subscriber.next("change")
        #expect(try agent.stop().status == 0)
    }

    @Test(arguments: ["700", "750", "2770", "2775"], ["000", "077"])
    func noFileHasMorePermissionsThanTheGroupDirectory(_ mode: String, _ umask: String) throws {
        for fileSystem in Places.FileSystem.allCases {
            let places = try Places(fileSystem)
            let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
            try makeStore(places.group.appending("Notes.sqlite"), rows: 7)
            try run("chmod", ["640", Word(store.path)])
            try run("chmod", [Word(mode), Word(places.group)])
            let done = try run(
                "sh",
                [
                    "-c", Word("umask \(umask); exec \"$@\""), "sh", Programs.groupstore, "relocate", Word(store.path),
                    Word(places.group), "--on-conflict", "keep-legacy", "--retire", "archive", "--json",
                ], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
            #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")

            let allowed = try Directory(places.group).status().permissions & 0o77
            let found = try DirectorySnapshot(places.group.appending(".groupstore"), withBookkeeping: true)
            for (name, entry) in found.entries {
                let mode: mode_t =
                    switch entry {
                    case .directory(let mode), .file(let mode, _): mode
                    case .link, .other: 0
                    }
                let path = String(decoding: name, as: UTF8.self)
                // An archived store keeps the mode that its program gave it, inside groupstore's own directories.
                if path.contains("Notes") { continue }
                #expect(mode & 0o77 & ~allowed == 0, "\(path): \(String(mode, radix: 8))")
                // The modes don't depend on the umask: other users must be able to claim there.
                if case .directory = entry { #expect(mode & 0o777 & allowed == allowed, "\(path)") }
            }
            #expect(try Directory(places.group).status("Notes.sqlite")?.permissions == 0o640)
        }
    }
}
