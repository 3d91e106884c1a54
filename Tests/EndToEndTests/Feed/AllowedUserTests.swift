import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A user gets from another user's agent only what Documentation/Security.md says. The agent grants nothing that the
/// user could not have without it.
@Suite(.ownThreads, .enabled(if: geteuid() == 0, "needs root, to become other users"))
struct AllowedUserTests {
    typealias AgentUser = AllowedUsers.AgentUser

    private func store(_ op: String, _ name: String, in group: String = AllowedUsers.group) -> JSONObject {
        [
            "id": 1, "op": .string(op), "store": .string("\(group)/\(name)"), "subscriber": "s", "token": "t",
            "access": "write",
        ]
    }

    private func code(_ answer: JSONObject?) -> String? { answer?.object("error")?.string("code") }

    @Test(arguments: AgentUser.allCases) func receivesChangesOfReadableStores(_ agentUser: AgentUser) throws {
        let scene = try AllowedUsers(agentUser, may: "subscribe")
        let subscriber = try scene.listen(store("subscribe", "Notes.sqlite"))
        try subscriber.line { $0.contains("\"ok\":true") }
        try sqlite(scene.notes, "INSERT INTO note (text) VALUES ('new')")
        try subscriber.line { $0.contains("\"type\":\"change\"") }
        // The users can see for themselves that no store is there.
        #expect(try scene.ask(store("subscribe", "Absent.sqlite")).first?.bool("ok") == true)
        #expect(try scene.ask(store("sync", "Notes.sqlite")).first?.bool("ok") == true)
    }

    /// An answer about a store reveals neither that it exists, nor that its group is served, nor what it contains.
    @Test(arguments: AgentUser.allCases) func reportsUnreadableStoresAsUnknown(_ agentUser: AgentUser) throws {
        let scene = try AllowedUsers(agentUser, may: "subscribe, present")
        for op in ["subscribe", "sync", "changes", "ack", "present", "claim"] {
            let answers = try scene.ask(
                store(op, "Secret.sqlite"), store(op, "Notes.sqlite", in: AllowedUsers.closed),
                store(op, "Absent.sqlite", in: AllowedUsers.closed), store(op, "Notes.sqlite", in: "group.nowhere"))
            let errors = answers.map { answer in
                // Compares member by member, because the order of an object's members is undefined.
                ["code", "message", "hint"].map { answer.object("error")?.string($0) ?? answer.text }
                    .joined(separator: " ").replacing(/group\.[a-z.]*[a-z]/, with: "GROUP")
            }
            #expect(answers.count == 4 && answers.allSatisfy { code($0) == "unknown_store" }, "\(op): \(errors)")
            #expect(Set(errors).count == 1, "\(op): \(errors)")
        }
        // Acknowledging a change is a write.
        #expect(code(try scene.ask(store("ack", "Notes.sqlite")).first) == "unknown_store")
    }

    /// Only a user who may write the store makes its presenters relinquish it or follow a move.
    @Test(arguments: AgentUser.allCases) func readersMayNotClaimWritingOrMove(_ agentUser: AgentUser) throws {
        let scene = try AllowedUsers(agentUser, may: "present")
        let presenter = try WireConnection(scene.socket)
        try presenter.send(["id": 1, "op": "present", "store": .string("\(AllowedUsers.group)/Notes.sqlite")])
        try presenter.next { $0.bool("ok") == true }
        func claim(_ name: String, _ access: String) -> JSONObject {
            [
                "id": 1, "op": "claim", "store": .string("\(AllowedUsers.group)/\(name)"), "access": .string(access),
                "deadline": .number(0.5),
            ]
        }
        func release(_ claim: String, _ from: String, _ to: String) -> JSONObject {
            let names = ["from": from, "to": to].mapValues { JSONValue.string("\(AllowedUsers.group)/\($0)") }
            let move: JSONObject = ["from": names["from"] ?? .null, "to": names["to"] ?? .null]
            return ["id": 2, "op": "release", "claim": .string(claim), "moves": .array([.object(move)])]
        }
        // The users may read this store, but may not create files beside it.
        #expect(code(try scene.ask(claim("Notes.sqlite", "write")).first) == "unknown_store")
        #expect(code(try scene.ask(claim("Absent.sqlite", "write")).first) == "unknown_store")
        let theirs = scene.places.group.appending("Theirs.sqlite")
        try makeStore(theirs, rows: 1)
        try give(theirs)
        // Presenters and claims share one sequence of numbers.
        var refused = try scene.ask(
            claim("Theirs.sqlite", "write"), release("c2", "Theirs.sqlite", "Other.sqlite"),
            release("c2", "Notes.sqlite", "Theirs.sqlite"))
        #expect(refused.first?.bool("ok") == true, "\(refused.map(\.text))")
        #expect(refused.dropFirst().map { code($0) } == ["unknown_store", "unknown_store"])
        // Even a user who may write every store cannot move one without a claim on it.
        try run("chmod", ["777", Word(scene.places.group)])
        try run("chmod", ["666", Word(scene.notes)])
        refused = try scene.ask(
            claim("Theirs.sqlite", "write"), release("c3", "Notes.sqlite", "Theirs.sqlite"),
            release("c3", "Theirs.sqlite", "Other.sqlite"))
        #expect(refused.map { code($0) } == [nil, "unknown_store", nil], "\(refused.map(\.text))")
        try presenter.send(["id": 9, "op": "status"])
        let event = try presenter.next { $0.type == "did_move" || $0["id"] == 9 }
        #expect(event.type != "did_move")
    }

    @Test(arguments: AgentUser.allCases) func statusShowsOnlyReadableStores(_ agentUser: AgentUser) throws {
        let scene = try AllowedUsers(agentUser, may: "subscribe")
        let own = try WireConnection(scene.socket)
        try own.send(store("subscribe", "Notes.sqlite"))
        try own.next { $0.bool("ok") == true }
        let theirs = try scene.lines(["id": 1, "op": "status"])
        let rows = theirs.filter { $0.type != nil && $0.type != "hello" }
        #expect(rows.map(\.type) == ["group", "store"])
        #expect(rows.last?.string("store") == "\(AllowedUsers.group)/Notes.sqlite")
        #expect(rows.allSatisfy { $0["last_relocation"] == nil && $0["relocation"] == nil })
        #expect(theirs.last?.integer("groups") == 1)
        let all = theirs.map(\.text).joined()
        #expect(!all.contains("Secret") && !all.contains("closed"))
        // Root sees everything, regardless of the user that runs the agent.
        let roots = try scene.lines(["id": 1, "op": "status"], as: "0").map(\.text).joined()
        #expect(roots.contains("Secret") && roots.contains("closed") && roots.contains("subscription"))
    }

    /// The agent ends the connections when the name refers to another file or the file's mode changes. Otherwise the
    /// clients would wait for events that never come.
    @Test(arguments: AgentUser.allCases) func losingReadPermissionEndsTheConnection(_ agentUser: AgentUser) throws {
        let scene = try AllowedUsers(agentUser, may: "subscribe")
        let subscriber = try scene.listen(store("subscribe", "Notes.sqlite"))
        try subscriber.line { $0.contains("\"ok\":true") }
        try run("mv", [Word(scene.secret), Word(scene.notes)])
        try subscriber.line { $0.contains("not_permitted") }
        let lines = try subscriber.wait().lines
        #expect(lines.last?.contains("not_permitted") == true && lines.count == 3, "\(lines)")
        #expect(code(try scene.ask(store("subscribe", "Notes.sqlite")).first) == "unknown_store")
    }

    @Test(arguments: [
        ("subscribe", ["present", "claim", "relocate"]), ("present", ["subscribe", "changes", "relocate"]),
    ])
    func refusesRequestsOutsideTheRole(_ may: String, _ ops: [String]) throws {
        let scene = try AllowedUsers(.root, may: may)
        for op in ops {
            var request = store(op, "Notes.sqlite")
            request["source"] = .string(scene.notes.string)
            request["group"] = .string(scene.places.group.string)
            #expect(code(try scene.ask(request).first) == "not_permitted", "\(op)")
        }
    }

    @Test func removalFromTheConfigurationEndsTheConnection() throws {
        let scene = try AllowedUsers(.root, may: "subscribe, present")
        let subscriber = try scene.listen(store("subscribe", "Notes.sqlite"))
        try subscriber.line { $0.contains("\"ok\":true") }
        try scene.reconfigure(may: "present")
        try subscriber.wait()
        #expect(code(try scene.ask(store("subscribe", "Notes.sqlite")).first) == "not_permitted")
    }

    // MARK: Relocations

    private func relocation(_ source: FilePath, _ group: FilePath, passing: FilePath? = nil) -> JSONObject {
        var request: JSONObject = ["id": 1, "op": "relocate", "deadline": 5]
        for (key, path) in [("source", source), ("group", group)] {
            request[key] = .string(path.string)
            if let identity = FileStatus(following: path)?.identity {
                request["\(key)_file"] = .object([
                    "dev": .string("\(identity.device)"), "ino": .string("\(identity.inode)"),
                ])
            }
        }
        request["pass"] = passing.map { .string($0.string) }
        return request
    }

    private func give(_ paths: FilePath...) throws {
        try run("chown", ["-R", Word("\(AllowedUsers.user):\(AllowedUsers.user)")] + paths.map { Word($0) })
    }

    /// The test grants the rights that a relocation needs one by one. Until the last one, each answer is the same and
    /// nothing moves.
    @Test(arguments: AgentUser.allCases) func aRelocationRequiresTheUsersOwnPermissions(_ agentUser: AgentUser) throws {
        let scene = try AllowedUsers(agentUser, may: "relocate", configured: ["Old.sqlite"])
        let theirs = scene.places.scratch("theirs")
        let source = theirs.appending("Old.sqlite")
        let others = scene.places.legacy.appending("Old.sqlite")
        try makeStore(source, rows: 4)
        try run("chmod", ["644", Word(others)])
        let group = scene.places.group
        var answers: [JSONObject] = []
        func refused(_ request: JSONObject) throws { answers += try scene.ask(request) }

        try run("chmod", ["777", Word(group)])
        // The users may read another user's store. They pass no descriptor, another file's descriptor, then a read-only
        // descriptor.
        try refused(relocation(others, group))
        try give(source)
        try refused(relocation(others, group, passing: source))
        try refused(relocation(source, group))
        var reading = relocation(source, group, passing: source)
        reading["flags"] = 0
        try refused(reading)
        // The agent does not serve this group, and this store is not configured.
        try refused(relocation(source, theirs, passing: source))
        var renamed = relocation(source, group, passing: source)
        renamed["name"] = "Other.sqlite"
        try refused(renamed)
        try refused(relocation(source, scene.closedGroup, passing: source))
        // The users may not write to this directory.
        try run("chmod", ["755", Word(group)])
        try refused(relocation(source, group, passing: source))
        try run("chmod", ["777", Word(group)])
        try run("chown", ["0:0", Word(theirs)])
        try refused(relocation(source, group, passing: source))
        try give(theirs)

        #expect(answers.count == 9)
        #expect(code(answers.first) == "not_permitted", "\(answers.map(\.text))")
        #expect(answers.allSatisfy { $0 == answers.first }, "\(answers.map(\.text))")
        #expect(try noteCount(source) == 4 && noteCount(others) == 2)
        guard agentUser == .root else { return }
        let done = try scene.ask(relocation(source, group, passing: source))
        #expect(done.first?.string("outcome") == "relocated", "\(done.map(\.text))")
        #expect(try noteCount(group.appending("Old.sqlite")) == 4)
    }

    @Test(arguments: ["model", "mappings", "default_store", "opaque", "assume_closed"])
    func refusesPathsThatTheAgentWouldRead(_ key: String) throws {
        let scene = try AllowedUsers(.root, may: "relocate", configured: ["Old.sqlite"])
        let source = scene.places.scratch("theirs").appending("Old.sqlite")
        try makeStore(source, rows: 4)
        try give(source)
        try run("chmod", ["777", Word(scene.places.group)])
        let file: JSONValue = .object(["path": .string(scene.secret.string)])
        var request = relocation(source, scene.places.group, passing: source)
        request["model"] = file
        switch key {
        case "model": break
        case "mappings": request[key] = .array([file])
        case "default_store": request[key] = file
        default:
            request["model"] = nil
            request[key] = true
        }
        let answer = try scene.ask(request).first
        #expect(code(answer) == "not_permitted" && answer?.text.contains("Secret") == false)
        #expect(try noteCount(source) == 4)
    }

    /// The answer contains no path and no table that the agent has read, whatever the outcome.
    @Test(arguments: [true, false]) func revealsNothingAboutAConflict(dryRun: Bool) throws {
        let scene = try AllowedUsers(.root, may: "relocate", configured: ["Notes.sqlite"])
        let source = scene.places.scratch("theirs").appending("Notes.sqlite")
        try makeStore(source, rows: 4)
        try give(source, scene.notes)
        try run("chmod", ["777", Word(scene.places.group)])
        var request = relocation(source, scene.places.group, passing: source)
        request["dry_run"] = .bool(dryRun)
        let lines = try scene.lines(request)
        #expect(lines.last?.string("outcome") == "conflict" && lines.last?["sides"] == nil)
        let error = try #require(lines.last?.object("error"))
        #expect(!error.text.contains("/") && !lines.contains { $0["text"] != nil }, "\(lines.map(\.text))")
    }

    /// Root can become the agent's user anyway.
    @Test func rootMayRelocateAnyStore() throws {
        let scene = try AllowedUsers(.another, may: "subscribe")
        let source = scene.places.scratch("theirs").appending("Loose.sqlite")
        try makeStore(source, rows: 4)
        try run("chown", ["-R", "65534:65534", Word(scene.places.scratch("theirs"))])
        let done = try scene.ask(relocation(source, scene.places.group), as: "0")
        #expect(done.first?.string("outcome") == "relocated", "\(done.map(\.text))")
    }

    /// The command passes the descriptors that the agent requires.
    @Test func theCommandOfAnAllowedUserRelocates() throws {
        let scene = try AllowedUsers(.root, may: "relocate", configured: ["Old.sqlite"])
        let source = scene.places.scratch("theirs").appending("Old.sqlite")
        try makeStore(source, rows: 4)
        try give(source)
        try run("chmod", ["777", Word(scene.places.group)])
        let done = try run(
            "setpriv",
            [
                Word("--reuid=\(AllowedUsers.user)"), Word("--regid=\(AllowedUsers.user)"), "--clear-groups",
                Word(scene.places.scratch("groupstore")), "relocate", Word(source), Word(scene.places.group), "--json",
            ], environment: ["GROUPSTORE_SOCKET": scene.socket.string])
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let log = try scene.end().errors
        #expect(log.contains("relocation for another user"), "\(log)")
    }
}
