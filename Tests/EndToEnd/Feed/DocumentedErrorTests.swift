import TestSupport
import Testing

/// The wire protocol's document has every word that an error may have as its code.
@Suite struct DocumentedErrorTests {
    /// The rooms whose errors travel, and the commands that the agent runs for its clients.
    private static let rooms = [
        "Sources/AgentProtocol", "Agent", "Sources/StoreRelocation", "Sources/groupstore/Commands/HistoryAccess.swift",
        "Sources/groupstore/Arguments/StoreArgument.swift",
    ]
    /// Of clients, what they make of an agent that says nothing; of commands that the agent runs for nobody.
    private static let unsent: Set<String> = [
        "bad_message", "already_running", "not_a_socket", "socket_path_too_long", "bad_configuration", "unusable_table",
        "unacknowledged",
    ]

    private static func codes(_ text: String) -> Set<String> {
        let words = text.matches(of: /code: "([a-z_]+)"/).map { String($0.1) }
        let pairs = text.matches(of: /\(\.[a-zA-Z]+, "([a-z_]+)"\)/).map { String($0.1) }
        let choices = text.matches(of: /code: [^"\n]+ \? "([a-z_]+)" : "([a-z_]+)"/).flatMap {
            [String($0.1), String($0.2)]
        }
        return Set(words + pairs + choices)
    }

    @Test func everyCodeIsThere() throws {
        let document = try run("cat", [Programs.source("Documentation/WireProtocol.md")]).output
        var found: Set<String> = []
        for room in Self.rooms {
            let files: [Word] = [Programs.source(room), "-name", "*.swift", "-exec", "cat", "{}", "+"]
            found.formUnion(Self.codes(try run("find", files).output))
        }
        #expect(found.count > 50)
        let missing = found.subtracting(Self.unsent).filter { !document.contains("`\($0)`") }
        #expect(missing.isEmpty, "\(missing.sorted())")
        for outcome in ["undone", "set_aside", "migrated", "conflict", "busy", "refused", "failed"] {
            #expect(document.contains("`\(outcome)`"))
        }
    }
}
