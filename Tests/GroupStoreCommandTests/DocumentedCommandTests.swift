import Foundation
import TestSupport
import Testing

@testable import GroupStoreCommand

/// The commands that the documentation names.
@Suite(.ownThreads) struct DocumentedCommandTests {
    /// Lines that begin with `groupstore` in blocks of commands.
    @Test func everyCommandParses() throws {
        var count = 0
        for block in try CodeBlock.all() where ["", "sh", "console"].contains(block.language) {
            for (number, line) in block.lines.enumerated() {
                let command = line.hasPrefix("$ ") ? String(line.dropFirst(2)) : line
                guard command.hasPrefix("groupstore ") else { continue }
                count += 1
                let place: Comment = "\(block.page):\(block.line + number): \(command)"
                let found = try Self.words(command)
                let words = try #require(found, place)
                #expect(throws: Never.self, place) { _ = try GroupStoreCommand.parseAsRoot(Array(words.dropFirst())) }
            }
        }
        #expect(count > 20)
    }

    /// As a shell takes them apart; optional ones, in brackets, are left out, and so is what is behind the command.
    private static func words(_ command: String) throws -> [String]? {
        var plain = command
        for pattern in [#"\[[^\]]*\]"#, #"\s#.*$"#, #"\s[|&>].*$"#] {
            while let range = plain.range(of: pattern, options: .regularExpression) { plain.removeSubrange(range) }
        }
        let done = try run("bash", ["-c", Word("for word in \(plain); do printf '%s\\n' \"$word\"; done")])
        return done.status == 0 ? done.lines : nil
    }
}
