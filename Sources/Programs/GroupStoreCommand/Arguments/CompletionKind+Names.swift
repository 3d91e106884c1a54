import ArgumentParser

/// Completion of the names that `CompleteCommand` prints.
///
/// bash expands what it is offered: a name with `$(…)` would run. Its script quotes the names, and adds files. In fish
/// and zsh, `CompletionScript` adds files.
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

    private static let storeWords = "stores --by-group ${cur:+\"--word=${cur}\"}"

    /// The command that prints the names in fish.
    static func fishCommand(_ kind: CompleteCommand.Names) -> String {
        "set -l words (commandline -opc); command $words[1] complete \(kind) 2>/dev/null"
    }

    /// - Parameters:
    ///   - bash: The arguments of `complete` in bash, and further commands.
    ///   - fish: Further commands in fish.
    private static func names(_ kind: CompleteCommand.Names, bash: String, fish: String = "") -> CompletionKind {
        switch CompletionShell.requesting {
        case .bash?:
            return .shellCommand(
                "{ \"${COMP_WORDS[0]}\" complete \(bash); } 2>/dev/null"
                    + " | LC_ALL=C sed \"s/[^A-Za-z0-9]/\\\\\\\\&/g\"")
        case .fish?:
            return .shellCommand(fishCommand(kind) + fish)
        default:
            // Also when a script calls back: only then is the closure called, and the shell known.
            return .custom { _, _, _ in
                let names = KnownNames(environment: ProcessVariables.all).lines(kind)
                return CompletionShell.requesting == .zsh ? names.map(\.escapedForDescribe) : names
            }
        }
    }
}

extension KnownNames {
    /// Returns the names of this kind, one a line.
    func lines(_ kind: CompleteCommand.Names) -> [String] {
        switch kind {
        case .groups: groups
        case .stores: storeNames
        case .all: groups + storeNames
        }
    }
}

extension String {
    /// The name as `_describe` of zsh takes it: a colon would begin a description.
    fileprivate var escapedForDescribe: String {
        split(separator: "\\", omittingEmptySubsequences: false).joined(separator: "\\\\")
            .split(separator: ":", omittingEmptySubsequences: false).joined(separator: "\\:")
    }
}
