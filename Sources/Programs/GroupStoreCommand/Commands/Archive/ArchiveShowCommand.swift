import AgentProtocol
import ArgumentParser
import CommandSupport
import CoreDataStore
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

struct ArchiveShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Show an archived store: its files, whether it is whole and intact, and its content.",
        discussion: """
            Changes nothing. SQLite checks the whole store, which takes as long as reading it. Exits with 65 if the \
            store is damaged or incomplete.

            Example:
              groupstore archive show group.com.example.notes Notes.sqlite
            """)

    @OptionGroup var group: ArchiveGroupArgument

    @Argument(
        help: "The archive's identifier or the beginning of it, or the store's name if only one has it.",
        completion: .archives)
    var archive: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let container = try group.container()
            let set = try ArchiveArgument(archive).find(among: ArchivedStore.all(in: container), in: container)
            output.record(set.json, lines: set.lines)
            for file in set.files {
                var row: JSONObject = ["type": "file", "bytes": .integer(file.size)]
                row.setPath("name", bytes: file.path.bytes)
                output.record(row, "    \(PrintablePath(file.path))  \(ByteCount(file.size))")
            }
            let health = try ArchiveHealth(set)
            describe(set, output)
            for finding in health.findings {
                output.record(["type": "finding", "text": .string(finding)], "    damage: \(finding)")
            }
            guard health.isGood else {
                throw CommandFailure(
                    .badData, code: health.word, "archive \(set.id) is \(health.word): \(health.reason)",
                    remedy: "restore it as it is, then save what can be read: groupstore archive restore "
                        + "\(container.directory.path.shellWord) \(set.id) --opaque")
            }
            var summary: JSONObject = [
                "type": "summary", "outcome": "described", "id": .string(set.id.rawValue),
                "integrity": .string(health.word), "bytes": .integer(set.bytes),
            ]
            summary.setPath("path", bytes: set.path.bytes)
            output.record(summary, health.sentence)
        }
    }

    /// Prints the store's description, if SQLite can read it.
    private func describe(_ set: ArchivedStore, _ output: Output) {
        guard let location = set.location,
            let description = try? StoreDescription(location, parsing: CoreDataMetadata.anyFormat)
        else { return }
        let entities = try? EntityReport(location, nil)
        if output.json {
            for line in description.json(entities).dropLast() { output.record(line, "") }
        } else {
            output.record([:], lines: [""] + description.lines(entities) + [""])
        }
    }
}

/// Whether an archived set is a whole store that SQLite finds intact.
struct ArchiveHealth {
    /// SQLite's findings, a sentence each.
    let findings: [String]
    /// `ok`, `damaged`, `incomplete`, `unfinished`, or `not_checked` for a set without a database that SQLite reads.
    let word: String
    let reason: String

    init(_ set: ArchivedStore) throws {
        switch set.state {
        case .incomplete: (findings, word, reason) = ([], "incomplete", set.problem ?? "")
        case .unknown, .leftovers: (findings, word, reason) = ([], "not_checked", set.problem ?? "it holds no store")
        case .unfinished: (findings, word, reason) = ([], "unfinished", set.problem ?? "")
        case .complete:
            guard let location = set.location else {
                (findings, word, reason) = ([], "not_checked", "")
                return
            }
            do {
                let found = try StoreIntegrity(location).findings
                (findings, word, reason) = (found, found.isEmpty ? "ok" : "damaged", found.first ?? "")
            } catch StoreError.foreign(let format, _) {
                (findings, word, reason) = ([], "not_checked", "SQLite can't read it: \(format)")
            } catch StoreError.corrupt(_, let message, _) {
                (findings, word, reason) = ([message], "damaged", message)
            }
        }
    }

    var isGood: Bool { word != "damaged" && word != "incomplete" }

    var sentence: String {
        word == "ok" ? "complete, and SQLite finds it intact" : "not checked: \(reason)"
    }
}
