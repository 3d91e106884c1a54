import ArgumentParser

@main
struct GroupStoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "groupstore",
        abstract: "Shared SQLite and Core Data stores: relocate them into a group container, and hear of each change.",
        version: "0.1.0",
        subcommands: [
            AgentCommand.self, RelocateCommand.self, WatchCommand.self, StatusCommand.self, InspectCommand.self,
            DoctorCommand.self, RecoverCommand.self, ModelCommand.self, CreateCommand.self, MigrateCommand.self,
            HistoryCommand.self, ChangesCommand.self,
        ])
}
