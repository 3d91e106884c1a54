import ArgumentParser
import CommandSupport
import Glibc

/// Finds a mistyped command before ArgumentParser, which takes it for a surplus argument and suggests nothing.
enum CommandSuggestion {
    /// Ends the program with a message if a word that isn't a command stands where one is expected.
    static func check(_ arguments: ArraySlice<String>, of command: any ParsableCommand.Type) {
        guard let lines = message(arguments, of: command, path: ["groupstore"]) else { return }
        Output.write(lines: lines, to: STDERR_FILENO)
        exit(ExitStatus.usage.rawValue)
    }

    private static func message(
        _ arguments: ArraySlice<String>, of command: any ParsableCommand.Type, path: [String]
    ) -> [String]? {
        let known = command.configuration.subcommands
        guard !known.isEmpty, let word = arguments.first, !word.hasPrefix("-") else { return nil }
        if word == "help" { return message(arguments.dropFirst(), of: command, path: path) }
        if let found = known.first(where: { $0.configuration.commandName == word }) {
            return message(arguments.dropFirst(), of: found, path: path + [word])
        }
        let nearest = known.compactMap { $0.configuration.commandName }.nearest(to: word)
        let words = path.joined(separator: " ")
        return [
            "Error: there is no command '\((path.dropFirst() + [word]).joined(separator: " "))'."
                + (nearest.map { " Did you mean '\(words) \($0)'?" } ?? ""),
            "Usage: \(words) <subcommand>", "  See '\(words) --help' for more information.",
        ]
    }
}

/// Options under their former names, which the help doesn't list.
enum FormerOptions {
    /// Returns the arguments with `--version NAME`, which selected a version of a model, as `--model-version NAME`.
    /// Without a value, `--version` shows the program's version.
    static func renamed(_ arguments: [String]) -> [String] {
        guard let command = arguments.first, ["create", "migrate", "model", "relocate"].contains(command) else {
            return arguments
        }
        var renamed = arguments
        let end = arguments.firstIndex(of: "--") ?? arguments.endIndex
        for index in arguments.indices[..<end] {
            if arguments[index] == "--version", index + 1 < end, !arguments[index + 1].hasPrefix("-") {
                renamed[index] = "--model-version"
            } else if arguments[index].hasPrefix("--version=") {
                renamed[index] = "--model-" + arguments[index].dropFirst(2)
            }
        }
        return renamed
    }
}

extension Sequence<String> {
    /// Returns the string that differs least from `word`, if it is similar enough to be meant. Case doesn't count.
    func nearest(to word: String) -> String? { similar(to: word).first }

    /// Returns the strings that are similar enough to `word` to be meant, the most similar first. Case doesn't count.
    func similar(to word: String) -> [String] {
        let word = Array(word.lowercased().utf8)
        // Longer words aren't typed; the time grows with the product of the lengths.
        guard word.count <= 255 else { return [] }
        let limit = Swift.max(1, word.count / 3)
        let known = compactMap { name -> (name: String, distance: Int)? in
            let other = Array(name.lowercased().utf8)
            guard other.count <= 255, abs(other.count - word.count) <= limit else { return nil }
            let distance = word.editDistance(to: other)
            return distance <= limit ? (name, distance) : nil
        }
        // Of equal ones, the first comes first: the sort is stable.
        return known.sorted { $0.distance < $1.distance }.map(\.name)
    }
}

extension [UInt8] {
    /// Returns the number of bytes to insert, remove, replace, or swap with the next one: the restricted
    /// Damerau-Levenshtein distance.
    func editDistance(to other: [UInt8]) -> Int {
        var beforeLast: [Int] = []
        var last = Array<Int>(0...other.count)
        for (row, byte) in enumerated() {
            var current = [row + 1]
            for (column, otherByte) in other.enumerated() {
                let replaced = last[column] + (byte == otherByte ? 0 : 1)
                var least = Swift.min(replaced, last[column + 1] + 1, current[column] + 1)
                if row > 0, column > 0, byte == other[column - 1], self[row - 1] == otherByte {
                    least = Swift.min(least, beforeLast[column - 1] + 1)
                }
                current.append(least)
            }
            (beforeLast, last) = (last, current)
        }
        return last[other.count]
    }
}
