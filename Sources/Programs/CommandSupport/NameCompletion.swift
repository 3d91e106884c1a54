import ArgumentParser

/// Completion of names that a program prints, one a line.
///
/// bash expands what it is offered: a name with `$(…)` would run. Its script quotes the names, and adds files. In fish
/// and zsh, `CompletionScript` adds files.
package enum NameCompletion {
    /// The arguments of `groupstore complete` for stores in bash.
    package static let storeWords = "stores --by-group ${cur:+\"--word=${cur}\"}"

    /// - Parameters:
    ///   - bash: The commands that print the names in bash.
    ///   - fish: The commands that print the names in fish.
    ///   - names: Returns the names for the words of a command line in zsh, which calls the program back.
    package static func kind(
        bash: String, fish: String, names: @escaping @Sendable ([String]) -> [String]
    ) -> CompletionKind {
        switch CompletionShell.requesting {
        case .bash?:
            return .shellCommand("{ \(bash); } 2>/dev/null | LC_ALL=C sed \"s/[^A-Za-z0-9]/\\\\\\\\&/g\"")
        case .fish?:
            return .shellCommand(fish)
        default:
            // Also when a script calls back: only then is the closure called, and the shell known.
            return .custom { words, _, _ in
                let names = names(words)
                return CompletionShell.requesting == .zsh ? names.map(\.escapedForDescribe) : names
            }
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
