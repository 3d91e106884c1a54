import Foundation
import GRDB
import Synchronization

/// An app's database, opened and closed by a presentation. It reports the begin and end of each opening and closing,
/// and reports two simultaneous callbacks.
final class Notebook: Sendable {
    private struct State {
        var database: DatabaseQueue?
        var callbacks = 0
        var place: URL?
    }

    private let key: String
    private let milliseconds: Int
    private let fails: Set<String>
    private let state = Mutex(State())

    init(_ request: Request) {
        key = request.key ?? "?"
        milliseconds = request.milliseconds ?? 0
        fails = Set(request.fails ?? [])
    }

    static let schema = "CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, text TEXT)"

    static var configuration: Configuration {
        var configuration = Configuration()
        configuration.busyMode = .timeout(20)
        configuration.journalMode = .wal
        return configuration
    }

    /// Opens the database, and creates it if it doesn't exist.
    static func open(_ url: URL) throws -> DatabaseQueue {
        let database = try DatabaseQueue(path: url.path(percentEncoded: false), configuration: configuration)
        try database.write { try $0.execute(sql: schema) }
        return database
    }

    func open(_ url: URL) async throws {
        enter("open")
        defer { leave("open") }
        Report(event: "opening", key: key, path: url.path(percentEncoded: false)).send()
        await pause()
        if fails.contains("open") {
            Report(event: "unopened", key: key).send()
            throw Complaint(message: "this opening fails on purpose")
        }
        let database = try Self.open(url)
        let earlier = state.withLock { state in
            let earlier = state.database
            (state.database, state.place) = (database, url)
            return earlier
        }
        if earlier != nil { Report(event: "trouble", key: key, what: "opened while it was open").send() }
        await pause()
        Report(event: "opened", key: key, path: url.path(percentEncoded: false)).send()
    }

    func close() async throws {
        enter("close")
        defer { leave("close") }
        Report(event: "closing", key: key).send()
        await pause()
        if fails.contains("close") { throw Complaint(message: "this closing fails on purpose") }
        let database = state.withLock { state in
            let database = state.database
            state.database = nil
            return database
        }
        if database == nil { Report(event: "trouble", key: key, what: "closed while it was closed").send() }
        try database?.close()
        await pause()
        Report(event: "closed", key: key).send()
    }

    var isOpen: Bool { state.withLock { $0.database != nil } }

    /// Commits a row; throws while the database is closed.
    func write(_ text: String) throws {
        guard let database = state.withLock({ $0.database }) else { throw Complaint(message: "closed") }
        try database.write { try $0.execute(sql: "INSERT INTO entry (text) VALUES (?)", arguments: [text]) }
    }

    func read() throws -> [String] {
        guard let database = state.withLock({ $0.database }) else { throw Complaint(message: "closed") }
        return try database.read { try String.fetchAll($0, sql: "SELECT text FROM entry") }
    }

    private func pause() async { try? await Task.sleep(for: .milliseconds(milliseconds)) }

    private func enter(_ what: String) {
        let others = state.withLock { state in
            state.callbacks += 1
            return state.callbacks - 1
        }
        if others > 0 { Report(event: "trouble", key: key, what: "\(what) beside another callback").send() }
    }

    private func leave(_ what: String) { state.withLock { $0.callbacks -= 1 } }
}
