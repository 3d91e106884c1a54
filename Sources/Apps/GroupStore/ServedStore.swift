import AgentProtocol
import LinuxSystem
import SystemPackage

extension SharedStore {
    /// True if an agent of this user answers and serves the store's group. It then relocates the group's stores;
    /// without one, a program may do so itself.
    package func isServedByAgent() async throws -> Bool {
        try await SystemThread.run(name: "gs-status") { [self] in
            guard let socket = AgentSocket.path(environment: AgentRegistries.environment),
                let connection = try? AgentConnection(socket), connection.belongsToSameUser
            else { return false }
            var isServed = false
            let status = StatusOperation(isBrief: true)
            let reply = try? connection.request(.status(status), deadline: Deadline(after: Self.replyTimeout)) {
                type, row in
                guard type == "group", row.string("group") == address.group,
                    let directory = row.path("directory").flatMap({ FilePath(bytes: $0) })
                else { return }
                if FileStatus(following: directory)?.identity == currentContainer.directory.identity { isServed = true }
            }
            return reply != nil && isServed
        }
    }
}
