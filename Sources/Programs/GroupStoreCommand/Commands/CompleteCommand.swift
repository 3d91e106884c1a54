import ArgumentParser
import CommandSupport

/// Prints the names that the completion scripts offer, one a line. Quiet if there is no agent or an error.
struct CompleteCommand: ProcIndependentCommand {
    /// Kinds of names.
    enum Names: String, ExpressibleByArgument, CaseIterable { case stores, groups, all }

    static let configuration = CommandConfiguration(
        commandName: "complete", abstract: "Print the names that a shell can complete.", shouldDisplay: false)

    @Argument var names: Names

    /// True for groups as `GROUP_ID/` until the word leaves only one of them, then its stores.
    @Flag var byGroup = false

    /// The word that is being completed, as typed.
    @Option var word = ""

    func run() {
        let known = KnownNames(environment: ProcessVariables.all)
        for name in byGroup ? known.storeNames(continuing: word) : known.lines(names) { print(name) }
    }
}
