import ArgumentParser
import CommandSupport

/// Prints the names that the completion scripts offer, one a line. Quiet if there is no agent or an error.
struct CompleteCommand: ProcIndependentCommand {
    /// Kinds of names.
    enum Names: String, ExpressibleByArgument, CaseIterable { case stores, groups, all, archives }

    static let configuration = CommandConfiguration(
        commandName: "complete", abstract: "Print the names that a shell can complete.", shouldDisplay: false)

    @Argument var names: Names

    /// True for groups as `GROUP_ID/` until the word leaves only one of them, then its stores.
    @Flag var byGroup = false

    /// The word that is being completed, as typed.
    @Option var word = ""

    /// The words of the command line before that one, as typed; they name the group of archives.
    @Argument(parsing: .postTerminator) var words: [String] = []

    func run() {
        let found =
            byGroup
            ? KnownNames(environment: ProcessVariables.all).storeNames(continuing: word)
            : KnownNames.lines(names, on: words)
        for name in found { print(name) }
    }
}
