import ArgumentParser

struct ModelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "model",
        abstract: "Read Core Data models: their content, version hashes, and migrations between them.",
        discussion: """
            MODEL is an .xcdatamodeld (its current version), a single .xcdatamodel, a .momd, a .mom, or a store, which \
            carries its own model.
            """,
        subcommands: [
            ModelHashCommand.self, ModelShowCommand.self, ModelDiffCommand.self, ModelCheckCommand.self,
            ModelMappingCommand.self, ModelExportCommand.self,
        ])
}
