import FoundationEssentials
import GRDB

extension Configuration {
    /// Opens a pool, and keeps the busy mode while it does: SQLite asks no busy handler when a store goes over to
    /// write-ahead mode while somebody writes it or does the same, since it has begun to read, and gives up at once
    /// (https://sqlite.org/c3ref/busy_handler.html). Throws GRDB's errors, and `CancellationError`.
    func openPool(at url: URL) async throws -> DatabasePool {
        let began = ContinuousClock.now
        var tries = 0
        while true {
            do {
                return try DatabasePool(path: url.path, configuration: self)
            } catch let error as DatabaseError where error.resultCode == .SQLITE_BUSY && waits(tries, since: began) {
                tries += 1
                // No event tells when a lock is let go of.
                try await Task.sleep(for: .milliseconds(Int.random(in: 2...20)))
            }
        }
    }

    private func waits(_ tries: Int, since began: ContinuousClock.Instant) -> Bool {
        switch busyMode {
        // Who opens the store at the same moment is no reason not to open it: that is over in an instant.
        case .immediateError: began.duration(to: .now) < .seconds(1)
        case .timeout(let seconds): began.duration(to: .now) / .seconds(1) < seconds
        case .callback(let callback): callback(tries)
        }
    }
}
