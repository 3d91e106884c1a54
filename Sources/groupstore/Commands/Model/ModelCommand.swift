import ArgumentParser

struct ModelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "model",
        abstract: "Read Core Data models: what is in them, their version hashes, and what a migration would do.",
        discussion: """
            MODEL is an .xcdatamodeld (its current version), a single .xcdatamodel, a .momd, a .mom, or a store, whose \
            model is the one that it carries.
            """,
        subcommands: [
            ModelHashCommand.self, ModelShowCommand.self, ModelDiffCommand.self, ModelCheckCommand.self,
            ModelMappingCommand.self,
        ])
}
