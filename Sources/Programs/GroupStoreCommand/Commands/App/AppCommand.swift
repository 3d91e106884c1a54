import AgentProtocol
import AppRelocation
import ArgumentParser
import CommandSupport
import LinuxSystem
import SystemPackage

struct AppCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "app",
        abstract: "List and check recipes: what move-app knows of a program's directory.",
        subcommands: [AppRecipesCommand.self, AppCheckCommand.self])
}

struct AppRecipesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "recipes",
        abstract: "List the recipes of this machine.",
        discussion: """
            Those in ~/.config/groupstore/apps.d count before those in groupstore/apps.d under $XDG_DATA_DIRS, which is \
            /usr/local/share and /usr/share by default.

            Example:
              groupstore app recipes
            """)

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        var isBroken = false
        try reporting(output) {
            var table = TextTable()
            var count = 0
            for path in AppRecipe.files(environment: ProcessVariables.all) {
                do throws(AppRecipeError) {
                    let recipe = try AppRecipe(reading: path)
                    let name = path.lastComponent?.stem ?? recipe.name
                    var line: JSONObject = ["type": "recipe", "name": .string(name), "about": .string(recipe.about)]
                    line["directory"] = recipe.directory.map { .string($0) }
                    line.setPath("path", bytes: path.bytes)
                    if output.json { output.record(line, "") }
                    table.add(.text(name), .text(recipe.about), .text(recipe.directory ?? ""))
                    count += 1
                } catch {
                    isBroken = true
                    Output.write("groupstore: \(error.message) (\(error.remedy))", to: 2)
                }
            }
            output.record(
                ["type": "summary", "outcome": "listed", "recipes": .integer(Int64(count))],
                lines: count == 0 ? ["there are no recipes (groupstore move-app needs none)"] : table.lines())
        }
        if isBroken { throw ExitCode(65) }
    }
}

struct AppCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Check that a recipe is valid, and with a directory, that it suits that.",
        discussion: """
            Example:
              groupstore app check newsboat ~/.newsboat
            """)

    @Argument(help: "The recipe's file, or its name.", completion: .file(extensions: ["yaml"]))
    var recipe: String

    @Argument(help: "A directory of the program.", completion: .directory)
    var directory: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output) {
            let path = AppRecipe.file(ArgumentBytes.path(recipe), environment: ProcessVariables.all)
            do {
                let recipe = try AppRecipe(reading: path)
                var summary: JSONObject = ["type": "summary", "outcome": "valid", "name": .string(recipe.name)]
                summary.setPath("path", bytes: path.bytes)
                guard let directory else { return output.record(summary, "\(PrintablePath(path)) is valid") }
                let place = ArgumentBytes.path(directory).absolute(in: FilePath(workingDirectory()))
                let found = try recipe.report(on: place)
                for table in found.tables {
                    var line: JSONObject = ["type": "check", "table": .string(table.check.table)]
                    line.setPath("store", bytes: table.check.store.bytes)
                    line["rows"] = .integer(table.rows)
                    let store = PrintablePath(table.check.store)
                    output.record(line, "\(store): \(table.check.table): \(Counted(Int(table.rows), "row"))")
                }
                for note in found.notes { output.record(["type": "note", "text": .string(note)], note) }
                output.record(summary, "\(PrintablePath(place)) suits \(PrintablePath(path))")
            } catch let error as AppRecipeError {
                throw CommandFailure(.badData, code: error.errorCode, error.message, remedy: error.remedy)
            }
        }
    }
}
