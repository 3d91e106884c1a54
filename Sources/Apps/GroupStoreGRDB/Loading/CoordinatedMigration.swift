import FileCoordination
import FoundationEssentials
import GRDB
import GroupStore
import LinuxSystem

/// Runs a migrator on each connection that is opened, unless the store has all of its migrations.
///
/// GRDB decides which migrations are due outside their transactions, so of two processes that start at once, the second
/// would run them once more. A coordinated access, which needs no agent, keeps it waiting. Its item stands for the
/// store's schema and doesn't exist as a file: an access to the store itself would wait for the processes that have it
/// open, which migrations leave alone.
struct CoordinatedMigration: Sendable {
    let migrator: DatabaseMigrator
    let store: SharedStore
    /// How long a migration waits for another process's migration, and for writers.
    let deadline: Duration

    /// Throws the migrations' errors, GRDB's errors, `FileCoordinationError` and `CancellationError`.
    func run(on connection: some DatabaseWriter) async throws {
        guard try await isDue(connection) else { return }
        let schema = store.container.url.appending(path: store.name + "-schema", directoryHint: .notDirectory)
        try await FileCoordinator(in: store.container).coordinate(
            with: [.writingIntent(with: schema)], deadline: deadline
        ) { _ in
            let end = ContinuousClock.now.advanced(by: deadline)
            while true {
                do {
                    return try await migrate(connection)
                } catch let error as DatabaseError where error.resultCode == .SQLITE_BUSY && ContinuousClock.now < end {
                    // A process of an older version writes. No event reports the release of a lock.
                    try Task.checkCancellation()
                    await QueueExecutor.sleep(for: .milliseconds(Int.random(in: 2...20)))
                }
            }
        }
    }

    private func isDue(_ connection: some DatabaseWriter) async throws -> Bool {
        if migrator.eraseDatabaseOnSchemaChange { return true }
        return try await connection.read { try !migrator.hasCompletedMigrations($0) }
    }

    /// Uses a thread of its own: `DatabaseMigrator.migrate(_:)` blocks its thread, and `asyncMigrate` needs one of
    /// those that the global executor uses, which tasks may block that wait for this database.
    private func migrate(_ connection: some DatabaseWriter) async throws {
        try await SystemThread.run(name: "gs-migrate") { [migrator] in try migrator.migrate(connection) }
    }
}
