import AgentProtocol
import ArgumentParser
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore

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

    @Option(
        help: "A model: say which of its versions the store is of; else the one of the configuration is used.",
        completion: .file())
    var model: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let (description, location) = try describe()
            let named = model ?? (description.coreData == nil ? nil : configuredModel(location))
            let version = try storeFailures { try named.map { try StoreVersion(of: location, $0) } }
            let entities = try storeFailures { try EntityReport(location, version?.version) }
            if output.json {
                var lines = description.json(entities)
                // The summary stays the last one.
                if let version { lines.insert(version.record, at: lines.count - 1) }
                for line in lines { output.record(line, "") }
            } else {
                for line in description.lines(entities) { output.record([:], line) }
                if let version { output.record([:], lines: ["", version.sentence]) }
            }
        }
    }

    /// The model that the standard configuration names for the store; nil for none, or for a configuration that can't be
    /// read: nobody has asked for it.
    private func configuredModel(_ location: StoreLocation) -> String? {
        let environment = ProcessVariables.all
        guard let path = ConfigurationFile.standardPath(environment: environment),
            let configuration = try? ConfigurationFile(path, environment: environment).load()
        else { return nil }
        let model = configuration.migration(of: location.path)?.model
        return model.flatMap { FileStatus(following: $0) == nil ? nil : $0.string }
    }

    private func describe() throws -> (StoreDescription, StoreLocation) {
        do {
            let location = try StoreArgument(store).location()
            return (try StoreDescription(location), location)
        } catch let error as StoreError {
            throw CommandFailure(error)
        } catch let error as SystemError {
            throw CommandFailure(error)
        } catch let error as ConfigurationError {
            throw CommandFailure(error)
        }
    }
}
