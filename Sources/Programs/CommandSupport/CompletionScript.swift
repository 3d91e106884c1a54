import ArgumentParser

/// A shell's completion script: ArgumentParser's, with files beside the names of stores. ArgumentParser's custom
/// completion replaces that of files.
package enum CompletionScript {
    /// Returns the command's script that the arguments `--generate-completion-script SHELL` ask for. Returns nil for
    /// other arguments, and for an unknown shell, which ArgumentParser reports.
    package static func requested(by arguments: [String], for command: (some ParsableCommand).Type) -> String? {
        let words = arguments.flatMap { $0.split(separator: "=", maxSplits: 1).map(String.init) }
        guard words.count == 2, words[0] == "--generate-completion-script",
            let shell = CompletionShell(rawValue: words[1])
        else { return nil }
        let script = command.completionScript(for: shell)
        return switch shell {
        case .fish: withFilesInFish(script)
        case .zsh: withFilesInZsh(script)
        default: script
        }
    }

    private static func lines(_ script: String) -> [Substring] {
        script.split(separator: "\n", omittingEmptySubsequences: false)
    }

    /// `-f` excludes files, `-F` offers them too.
    private static func withFilesInFish(_ script: String) -> String {
        let exclusion = " -fka "
        return lines(script).map { line in
            guard ["stores", "all"].contains(where: { line.hasSuffix(" complete \($0) 2>/dev/null)'") }),
                let option = line.indices.first(where: { line[$0...].hasPrefix(exclusion) })
            else { return String(line) }
            return line[..<option] + " -Fka " + line[option...].dropFirst(exclusion.count)
        }.joined(separator: "\n")
    }

    private static func withFilesInZsh(_ script: String) -> String {
        var lines = lines(script)
        // What follows the functions.
        let suffix = "_custom_complete() {"
        guard let end = lines.lastIndex(where: { $0.hasPrefix("if [[ \"${funcstack[1]}\"") }),
            let prefix = lines.first(where: { $0.hasSuffix(suffix) })?.dropLast(suffix.count)
        else { return script }
        lines.insert(zshFiles(prefix)[...], at: end)
        return lines.joined(separator: "\n")
    }

    private static func zshFiles(_ prefix: Substring) -> String {
        """
        # A store's argument may be a file, too, and a group container's a directory.
        functions -c \(prefix)_custom_complete \(prefix)_complete_names
        \(prefix)_custom_complete() {
            \(prefix)_complete_names "${@}"
            case "${2} ${(M)@:#positional@*}" in
            group\\ *) ;;
            recover\\ * | follow\\ * | relocate\\ positional@1 | archive\\ positional@0) _files -/ ;;
            archive\\ *) ;;
            *) _files ;;
            esac
        }

        """
    }
}
