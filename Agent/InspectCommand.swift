import AgentProtocol
import ArgumentParser
import GroupStoreAgent
import LinuxSystem
import PersistentStore

struct InspectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "Describe a store: its files, tables and rows, and what Core Data wrote about it.",
        discussion: """
            Nothing of the store is changed, not even a side file made or removed, and programs that have it open \
            aren't hindered.
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .file())
    var store: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let description = try describe()
            if output.json {
                for line in description.json { output.record(line, "") }
            } else {
                for line in description.lines { output.record([:], line) }
            }
        }
    }

    private func describe() throws -> StoreDescription {
        do {
            return try StoreDescription(StoreArgument(store).location())
        } catch let error as StoreError {
            throw CommandFailure(error)
        } catch let error as SystemError {
            throw CommandFailure(error)
        } catch let error as ConfigurationError {
            throw CommandFailure(error)
        }
    }
}
