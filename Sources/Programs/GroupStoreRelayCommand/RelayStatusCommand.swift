import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
import GroupContainers
import LinuxSystem
import RelayStatus

struct RelayStatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show this user's running relays and followers, and the system's.",
        discussion: """
            Shows for each: the store, the broker, how far it is behind, and the last error. One that ended with an \
            error is shown until it is started again. Those of the \
            system's units are shown to root and to their own user. The exit code is 73 if one was superseded or has \
            diverged, 69 if another one has ended with an error or waits for its cause to end, else 0.

            Example:
              groupstore-relay status
            """)

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try output.reporting {
            let records = RelayRecord.all(environment: Environment.all)
            for record in records { output.record(record.object, lines: record.lines) }
            output.record(
                ["type": "summary", "outcome": "read", "relays": .integer(Int64(records.count))],
                lines: records.isEmpty ? ["no relay runs"] : [])
            let states = records.filter(\.isInTrouble).map(\.state)
            if states.contains(where: ["superseded", "diverged"].contains) { throw ExitStatus.conflict.code }
            if !states.isEmpty { throw ExitStatus.unavailable.code }
        }
    }
}
