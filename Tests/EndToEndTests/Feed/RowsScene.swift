import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// An agent that follows the rows of one store, and can be killed.
final class RowsScene {
    let places: Places
    let store: FilePath
    let name = "\(AgentProcess.group)/Notes.sqlite"
    private let configuration: FilePath
    private(set) var agent: AgentProcess
    private var number: Int64 = 0

    init(_ sql: String) throws {
        places = try Places()
        store = places.group.appending("Notes.sqlite")
        try sqlite(store, sql)
        configuration = places.scratch("config.yaml")
        let text = """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group.string)
                stores: [{ name: Notes.sqlite, rows: true }]
            """
        try Descriptor(opening: configuration, flags: O_WRONLY | O_CREAT, mode: 0o600)
            .write(Array(text.utf8), at: 0, path: configuration)
        agent = try Self.start(configuration, places)
    }

    private static func start(_ configuration: FilePath, _ places: Places) throws -> AgentProcess {
        try AgentProcess(["--config", Word(configuration)], socket: places.scratch("agent.sock"))
    }

    func killAgent(_ meanwhile: () throws -> Void = {}) throws {
        try agent.process.killAtOnce()
        try meanwhile()
        agent = try Self.start(configuration, places)
    }

    /// Returns the lines before the reply to a request, and the reply.
    func ask(_ request: JSONObject) throws -> (lines: [JSONObject], reply: JSONObject) {
        number += 1
        var request = request
        request["id"] = .integer(number)
        request["store"] = .string(name)
        let connection = try agent.connect()
        try connection.send(request)
        var lines: [JSONObject] = []
        let reply = try connection.next { line in
            guard line["ok"] == nil else { return true }
            lines.append(line)
            return false
        }
        return (lines, reply)
    }

    /// Waits until the agent's log has so many steps, without a request that would make it read the store.
    func awaitSteps(_ number: Int) throws {
        let deadline = Deadline(after: .ample)
        while true {
            let shown = try groupstore("rows", "show", Word(name), "--json", environment: agent.environment)
            if shown.objects.first?["steps"] == .integer(Int64(number)) { return }
            try #require(!deadline.hasPassed, "\(shown.output)")
        }
    }

    /// Returns all rows after a position, page by page. Throws if a page is a reset.
    func rows(
        after token: String, limit: Int = 256, values: Bool = true, operations: [JSONValue]? = nil
    ) throws -> [JSONObject] {
        var (position, rows) = (token, [JSONObject]())
        while true {
            var request: JSONObject = ["op": "changes", "since": .string(position), "limit": .integer(Int64(limit))]
            if values { request["values"] = true }
            if let operations { request["operations"] = .array(operations) }
            let (lines, reply) = try ask(request)
            try #require(reply.string("outcome") == "changes", "\(reply.text)")
            rows += lines.filter { $0.type == "row" }
            position = try #require(reply.string("token"), "\(reply.text)")
            if reply.bool("more") != true { return rows }
        }
    }

    /// Returns the present position.
    func token() throws -> String {
        let reply = try ask(["op": "subscribe", "durable": true]).reply
        return try #require(SubscriptionToken(reply.string("token") ?? "")?.history, "\(reply.text)")
    }
}
