import ArgumentParser
import Foundation
import GRDB
import GroupStore
import GroupStoreGRDB

/// An app that keeps its notes in a group container and presents the store while it writes, so that it can be relocated
/// meanwhile. Prints a line for each committed row, and one for each pause caused by a relocation.
@main
struct NotesApp: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write notes into a shared store, which may be relocated at any time.")

    @Argument(help: "The group's identifier, such as group.com.example.notes.")
    var group: String

    @Option(help: "The store's file name.")
    var name = "Notes.sqlite"

    @Option(help: "The store's path before it was in a group container.")
    var legacy: String?

    @Option(help: "The group's directory, if it isn't the standard one.")
    var directory: String?

    @Option(help: "The number of notes to write.")
    var rows = 1000

    @Option(help: "The number of notes per second; 0 for no limit.")
    var rate = 1000

    @Option(help: "The prefix of each note's title.")
    var title = "Note"

    @Flag(help: "Relocate the legacy store before opening it; otherwise an agent does while it is open.")
    var relocate = false

    @Flag(help: "Write nothing; print the number of notes whenever any process changes it.")
    var observe = false

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("note") { database in
            // A store of the app before the change has the table already.
            try database.execute(sql: "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, title TEXT)")
        }
        return migrator
    }

    func run() async throws {
        let notes = try await load()
        say("open \(notes.url.path)")
        if observe { try await observe(notes) } else { try await write(to: notes) }
        try await notes.close()
        say("done")
    }

    private func load() async throws -> SharedDatabasePool {
        var configuration = Configuration()
        configuration.busyMode = .timeout(10)
        let old = legacy.map { URL(filePath: $0) }
        guard let directory else {
            return try await SharedDatabasePool.load(
                name, in: group, relocating: old, migrator: Self.migrator, configuration: configuration,
                relocatesNow: relocate, progress: report)
        }
        let container = try GroupContainer(identifier: group, directory: URL(filePath: directory))
        return try await SharedDatabasePool.load(
            name, in: container, relocating: old, migrator: Self.migrator, configuration: configuration,
            relocatesNow: relocate, progress: report)
    }

    @Sendable private func report(_ progress: RelocationProgress) {
        switch progress {
        case .waiting(let holders): say("waiting for \(holders.map(\.program).joined(separator: ", "))")
        case .finished(let outcome, _, let url): say("\(outcome) \(url.path)")
        case .note, .copied: break
        }
    }

    /// Prints the number of notes until the process ends.
    private func observe(_ notes: SharedDatabasePool) async throws {
        let counts = ValueObservation.tracking { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") ?? 0 }
        for try await count in counts.removeDuplicates().values(in: notes) { say("notes \(count)") }
    }

    private func write(to notes: SharedDatabasePool) async throws {
        let clock = ContinuousClock()
        let start = clock.now
        var url = notes.url
        var last = start
        for number in 1...max(1, rows) {
            if rate > 0 { try await clock.sleep(until: start.advanced(by: .seconds(Double(number) / Double(rate)))) }
            let title = "\(title) \(number)"
            try await notes.write { try $0.execute(sql: "INSERT INTO note (title) VALUES (?)", arguments: [title]) }
            say("row \(title)")
            if notes.url != url {
                url = notes.url
                say("moved to \(url.path), paused \(Self.milliseconds(last.duration(to: clock.now))) ms")
            }
            last = clock.now
        }
    }

    private static func milliseconds(_ duration: Duration) -> Int64 {
        duration.components.seconds * 1000 + duration.components.attoseconds / 1_000_000_000_000_000
    }
}

/// Writes a line at once: `print` buffers its output unless it goes to a terminal.
private func say(_ line: String, to file: FileHandle = .standardOutput) { file.write(Data((line + "\n").utf8)) }
