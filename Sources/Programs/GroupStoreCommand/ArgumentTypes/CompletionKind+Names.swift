import ArgumentParser
import CommandSupport

/// Completion of the names that `CompleteCommand` prints.
extension CompletionKind {
    /// Stores as `GROUP_ID/NAME`, and files.
    static var stores: CompletionKind { names(.stores, bash: "\(storeWords); compgen -f -- \"${cur}\"") }
    /// Identifiers of groups.
    static var groups: CompletionKind { names(.groups, bash: "groups") }
    /// Identifiers of groups, and directories.
    static var containers: CompletionKind {
        names(
            .groups, bash: "groups; compgen -d -- \"${cur}\"", fish: "; __fish_complete_directories (commandline -ct)")
    }
    /// Identifiers of groups, stores as `GROUP_ID/NAME`, and files.
    static var groupsAndStores: CompletionKind {
        names(.all, bash: "groups; \"${COMP_WORDS[0]}\" complete \(storeWords); compgen -f -- \"${cur}\"")
    }

    /// Identifiers of the archives of the group that stands before, on the same line.
    static var archives: CompletionKind {
        names(
            .archives, bash: "archives -- \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"", fishArguments: " -- $words[2..]")
    }

    private static let storeWords = NameCompletion.storeWords

    /// - Parameters:
    ///   - bash: The arguments of `complete` in bash, and further commands.
    ///   - fishArguments: Further arguments of `complete` in fish.
    ///   - fish: Further commands in fish.
    private static func names(
        _ kind: CompleteCommand.Names, bash: String, fishArguments: String = "", fish: String = ""
    ) -> CompletionKind {
        NameCompletion.kind(
            bash: "\"${COMP_WORDS[0]}\" complete \(bash)",
            fish: "set -l words (commandline -opc); command $words[1] complete \(kind)\(fishArguments) 2>/dev/null"
                + fish,
            names: { KnownNames.lines(kind, on: $0) })
    }
}

extension KnownNames {
    /// Returns the names of this kind, one a line.
    ///
    /// - Parameter words: The words of the command line as they were typed, with the shell's quotes.
    static func lines(_ kind: CompleteCommand.Names, on words: [String]) -> [String] {
        let environment = ProcessVariables.all
        return switch kind {
        case .groups: KnownNames(environment: environment).groups
        case .stores: KnownNames(environment: environment).storeNames
        case .all: KnownNames(environment: environment).groupsAndStores
        case .archives: archives(on: words, environment: environment)
        }
    }
}
