import AgentProtocol
import ArgumentParser
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore

struct InspectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "Describe a store: its files, settings, tables and rows, and its Core Data metadata.",
        discussion: """
            Changes nothing in the store, creates and removes no side file, and doesn't hinder programs that have \
            it open.
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(
        help: "Determine the store's version of this model; by default of the configured one.",
        completion: .file())
    var model: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let location = try StoreArgument(store).location()
            let description = try StoreDescription(location)
            let named = model ?? (description.coreData == nil ? nil : configuredModel(location))
            let version = try named.map { try StoreVersion(of: location, $0) }
            let entities = try EntityReport(location, version?.version)
            if output.json {
                var lines = description.json(entities)
                // The summary stays last.
                if let version { lines.insert(version.record, at: lines.count - 1) }
                for line in lines { output.record(line, "") }
            } else {
                for line in description.lines(entities) { output.record([:], line) }
                if let version { output.record([:], lines: ["", version.sentence]) }
            }
        }
    }

    /// Returns the model that the standard configuration names for the store. Returns nil if there is none, or if the
    /// configuration can't be read, because the user didn't ask for it.
    private func configuredModel(_ location: StoreLocation) -> String? {
        let environment = ProcessVariables.all
        guard let configuration = try? Configuration.standard(environment: environment) else { return nil }
        let model = configuration.migration(of: location.path)?.model
        return model.flatMap { FileStatus(following: $0) == nil ? nil : $0.string }
    }
}
