import EndToEndSupport
import TestSupport
import Testing

/// The wire protocol's document lists every error code that the agent can send.
@Suite struct DocumentedErrorTests {
    /// The modules whose errors go over the wire, and the commands that the agent runs for its clients.
    private static let directories = [
        "Sources/Sharing/AgentProtocol", "Agent", "Sources/Sharing/StoreRelocation",
        "Sources/Programs/GroupStoreCommand/Commands/HistoryAccess.swift",
        "Sources/Sharing/GroupContainers", "Sources/System/LinuxSystem", "Sources/Changes/PersistentHistory",
        "Sources/SQLite/SQLiteStore",
    ]
    /// The codes that clients raise when an agent doesn't answer, and those of commands that the agent never runs for a
    /// client.
    private static let unsent: Set<String> = [
        "bad_message", "already_running", "not_a_socket", "socket_path_too_long", "bad_configuration", "unusable_table",
        "unacknowledged", "is_replica",
        // Of commands without an agent.
        "no_proc", "old_sqlite", "orphaned_copy", "branch_damaged",
        "damaged", "destination_taken", "incomplete", "interrupted", "no_archive", "no_directory", "no_store",
        "untrusted_note",
    ]

    private static func codes(_ text: String) -> Set<String> {
        let words = text.matches(of: /code: "([a-z_]+)"/).map { String($0.1) }
        let pairs = text.matches(of: /\(\.[a-zA-Z]+, "([a-z_]+)"\)/).map { String($0.1) }
        let choices = text.matches(of: /code: [^"\n]+ \? "([a-z_]+)" : (?:"([a-z_]+)")?/).flatMap {
            [String($0.1), $0.2.map { String($0) }].compactMap(\.self)
        }
        // The codes of an `ActionableError`: the values in its property.
        let properties = text.matches(of: /(?s)var errorCode: String \{(.*?)\n\n/).flatMap { property in
            property.1.matches(of: /[:?{] "([a-z_]+)"/).map { String($0.1) }
        }
        return Set(words + pairs + choices + properties)
    }

    @Test func everyCodeIsDocumented() throws {
        let document = try run("cat", [Programs.source("Documentation/WireProtocol.md")]).output
        var found: Set<String> = []
        for directory in Self.directories {
            let files: [Word] = [Programs.source(directory), "-name", "*.swift", "-exec", "cat", "{}", "+"]
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
