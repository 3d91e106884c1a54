import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import ManagedObjectModels

struct ModelExportCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Write the model that a store carries as a source model for Xcode.",
        discussion: """
            Core Data and SwiftData keep a copy of the model in each store. The written model is read back: its version \
            hashes equal the store's, or nothing is written. Settings that the XML can't express are named. MODEL may \
            also be a compiled model.

            Example:
              groupstore model export Notes.sqlite --to Notes.xcdatamodel
            """)

    @Argument(help: "The store, or a model.", completion: .file())
    var model: String

    @Option(help: "The directory to create: NAME.xcdatamodel, or NAME.xcdatamodeld with one version.")
    var to: String

    @OptionGroup var versionOption: ModelVersionOption

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            let argument = try ModelArgument(model)
            let named = try argument.version(named: versionOption.modelVersion, .none)
            let path = ArgumentBytes.path(to)
            guard let model = named.model else { throw missingModel(argument, named) }
            let omissions = try model.writeSource(to: path)
            for omission in omissions { output.record(omission.record, "note: " + omission.sentence) }
            var record: JSONObject = [
                "type": "summary", "outcome": "exported", "entities": .integer(Int64(model.entities.count)),
                "checksum": .string(named.checksum), "omissions": .integer(Int64(omissions.count)),
            ]
            record.setPath("path", bytes: path.bytes)
            output.record(
                record,
                "wrote \(PrintablePath(path)): \(Counted(model.entities.count, "entity", "entities")), with the version hashes of "
                    + "\(PrintablePath(argument.path))")
        }
    }

    private func missingModel(_ argument: ModelArgument, _ named: NamedModel) -> CommandFailure {
        let problem = argument.store?.cacheProblem ?? "the store carries no model"
        return CommandFailure(
            .badData, code: "no_model", "\(PrintablePath(argument.path)): \(problem)",
            remedy: "find the app's .momd or .xcdatamodeld: `groupstore model hash` prints what it must match")
    }
}
