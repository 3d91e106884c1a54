import ArgumentParser
import Foundation
import GRDB
import GroupStore
import GroupStoreGRDB

/// An app that keeps its notes in a group container, and presents the store while it writes: it can be relocated under
/// it. Prints a line for each row that is committed, and one for each pause that a relocation made.
@main
struct NotesApp: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write notes into a shared store, and let go of it whenever it is relocated.")

    @Argument(help: "The group's identifier, such as group.com.example.notes.")
    var group: String

    @Option(help: "The store's file name.")
    var name = "Notes.sqlite"

    @Option(help: "Where the store was before there was a group container.")
    var legacy: String?

    @Option(help: "The group's directory, where it isn't the standard one.")
    var directory: String?

    @Option(help: "How many notes to write.")
    var rows = 1000

    @Option(help: "Notes a second; 0 is as fast as it goes.")
    var rate = 1000

    @Option(help: "What each note's title begins with.")
    var title = "Note"

    @Flag(help: "Write nothing: print how many notes there are, whenever any process has changed that.")
    var observe = false

    func run() async throws {
        let container =
            try directory.map { try GroupContainer(identifier: group, directory: URL(filePath: $0)) }
            ?? GroupContainer(identifier: group)
        let store = try SharedStore(name, in: container, legacy: legacy.map { URL(filePath: $0) })
        var configuration = Configuration()
        configuration.busyMode = .timeout(10)
        let notes = try await SharedDatabasePool(store, configuration: configuration) { pool in
            try pool.write { database in
                try database.execute(sql: "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, title TEXT)")
            }
        }
        say("open \(notes.url.path)")
        if observe { try await observe(notes) } else { try await write(to: notes) }
        try await notes.close()
        say("done")
    }

    /// Until the process is ended.
    private func observe(_ notes: SharedDatabasePool) async throws {
        let counts = ValueObservation.tracking { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") ?? 0 }
        for try await count in notes.values(of: counts.removeDuplicates()) { say("notes \(count)") }
    }

    private func write(to notes: SharedDatabasePool) async throws {
        let clock = ContinuousClock()
        let start = clock.now
        var place = notes.url
        var last = start
        for number in 1...max(1, rows) {
            if rate > 0 { try await clock.sleep(until: start.advanced(by: .seconds(Double(number) / Double(rate)))) }
            let title = "\(title) \(number)"
            try await notes.write { try $0.execute(sql: "INSERT INTO note (title) VALUES (?)", arguments: [title]) }
            say("row \(title)")
            if notes.url != place {
                place = notes.url
                say("moved to \(place.path), paused \(Self.milliseconds(last.duration(to: clock.now))) ms")
            }
            last = clock.now
        }
    }

    private static func milliseconds(_ duration: Duration) -> Int64 {
        duration.components.seconds * 1000 + duration.components.attoseconds / 1_000_000_000_000_000
    }
}

/// A line at once: `print` would keep it back while the output is no terminal.
private func say(_ line: String, to file: FileHandle = .standardOutput) { file.write(Data((line + "\n").utf8)) }
