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

    @Option(help: "A model: say which of its versions the store is of.", completion: .file())
    var model: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let description = try describe()
            let version = try model.map { try StoreVersion(of: description, $0) }
            if output.json {
                var lines = description.json
                // The summary stays the last one.
                if let version { lines.insert(version.record, at: lines.count - 1) }
                for line in lines { output.record(line, "") }
            } else {
                for line in description.lines { output.record([:], line) }
                if let version { output.record([:], "\n" + version.sentence) }
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
