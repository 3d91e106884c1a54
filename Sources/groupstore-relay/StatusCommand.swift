import AgentProtocol
import ArgumentParser
import Glibc
import GroupContainers
import LinuxSystem
import RelayStatus

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show this user's running relays and followers.",
        discussion: """
            Shows for each: the store, the broker, how far it is behind, and the last error. One that ended with an \
            error is shown until it is started again. Exits with 0 whatever the state is.
            """)

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = RelayOutput(outputOptions)
        try output.reporting {
            let directory = RelayRecord.directory(environment: Environment.all)
            let records = try directory.map { try RelayRecord.all(in: $0) } ?? []
            for record in records {
                output.record(record.object)
                for line in record.lines { output.print(line) }
            }
            if records.isEmpty { output.print("no relay runs") }
            output.record(["type": "summary", "outcome": "read", "relays": .integer(Int64(records.count))])
        }
    }
}
