import AgentProtocol
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// One object of the status.
struct StatusRow: Sendable {
    let type: String
    var object: JSONObject
    var lines: [String]

    init(_ type: String, _ members: JSONObject, lines: String...) { self.init(type, members, lines: lines) }

    init(_ type: String, _ members: JSONObject, lines: [String]) {
        self.type = type
        self.lines = lines
        var object: JSONObject = ["type": .string(type)]
        for member in members.members where member.key != "type" && member.key != "id" {
            object[member.key] = member.value
        }
        self.object = object
    }
}

/// The status that an agent reports of itself.
struct AgentStatus: Sendable {
    let rows: [StatusRow]
    /// The members of the reply.
    let summary: JSONObject
}

extension AgentStatus {
    /// The time that an agent has for its answer.
    static let timeout = Duration.seconds(10)

    /// Requests the status from the agent of the environment.
    init(environment: [String: String]) throws(AgentConnectionError) {
        try self.init(socket: AgentConnection.standardSocket(environment: environment))
    }

    /// Requests the status from the agent at that socket.
    init(socket: FilePath) throws(AgentConnectionError) { try self.init(AgentConnection(socket), StatusOperation()) }

    /// Requests the status, or the part of it that the operation names.
    init(
        _ connection: AgentConnection, _ operation: StatusOperation, timeout: Duration = Self.timeout
    ) throws(AgentConnectionError) {
        var found: [StatusRow] = []
        let reply = try connection.request(.status(operation), deadline: Deadline(after: timeout)) { type, row in
            // An agent of an earlier version sends the rows of the whole group.
            if let only = operation.store, let store = row.store, store != only { return }
            found.append(StatusRow(type, row, lines: Self.lines(type, row)))
        }
        found = Self.sorted(found)
        var summary = JSONObject()
        for member in reply.members where member.key != "id" && member.key != "ok" {
            summary[member.key] = member.value
        }
        rows = found
        self.summary = summary
    }

    /// Returns the rows with each legacy place after its store's other rows. The agent sends them after those of the
    /// whole group.
    private static func sorted(_ rows: [StatusRow]) -> [StatusRow] {
        var legacy = Dictionary(grouping: rows.filter { $0.type == "legacy" }) { $0.object.store }
        var sorted: [StatusRow] = []
        let others = rows.filter { $0.type != "legacy" }
        for (index, row) in others.enumerated() {
            sorted.append(row)
            guard let store = row.object.store else { continue }
            let isLast = index + 1 == others.count || others[index + 1].object.store != store
            if isLast { sorted += legacy.removeValue(forKey: store) ?? [] }
        }
        return sorted + rows.filter { $0.type == "legacy" && legacy[$0.object.store] != nil }
    }
}
