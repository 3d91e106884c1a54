import AgentProtocol
import ArgumentParser
import CommandSupport
import CoreDataStore
import Glibc
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreMigration

struct InspectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "Describe a store: its files, settings, tables and rows, and its Core Data metadata.",
        discussion: """
            Changes nothing in the store, creates and removes no side file, and doesn't hinder programs that have \
            it open. Exits with 65 and says why while programs' commits to the store can be lost (doctor).

            Example:
              groupstore inspect group.com.example.notes/Notes.sqlite
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(
        name: .customLong("model"),
        help: """
            Determine the store's version of this model; by default of the configured one. If repeated, the models are \
            merged.
            """,
        completion: .file())
    var models: [String] = []

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let location = try StoreArgument(store).location()
            output.noteForeignLog(beside: location)
            let isInDanger = warnOfHazards(to: location, output)
            let description = try StoreDescription(location, parsing: CoreDataMetadata.anyFormat)
            let configured = models.isEmpty && description.coreData != nil ? configuredModel(location) : nil
            let named = configured.map { ([$0.model] + $0.mergedModels).map(\.string) } ?? models
            let version =
                try named.isEmpty
                ? nil : StoreVersion(of: location, named, configuration: configured?.configuration)
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
            if isInDanger { throw ExitStatus.badData.code }
        }
    }

    /// Says which processes have commits that this one doesn't see. Returns true if there is any.
    private func warnOfHazards(to location: StoreLocation, _ output: Output) -> Bool {
        let places = [location] + [StoreArgument(store).link].compactMap(\.self)
        let hazards = places.flatMap { HazardDiagnosis($0.directory.path, only: $0.name).findings() }
        for hazard in hazards {
            let remedy = hazard.remedy ?? ""
            output.record([
                "type": "hazard", "code": .string(hazard.check), "message": .string(hazard.message),
                "hint": .string(remedy),
            ])
            Output.write("groupstore: \(hazard.check): \(hazard.message) (\(remedy))", to: STDERR_FILENO)
        }
        return !hazards.isEmpty
    }

    /// Returns the models that the standard configuration names for the store. Returns nil if there is none, or if the
    /// configuration can't be read, because the user didn't ask for it.
    private func configuredModel(_ location: StoreLocation) -> MigrationRequest? {
        let environment = ProcessVariables.all
        guard let configuration = try? Configuration.standard(environment: environment) else { return nil }
        let migration = configuration.migration(of: location.path)
        return migration.flatMap { FileStatus(following: $0.model) == nil ? nil : $0 }
    }
}
