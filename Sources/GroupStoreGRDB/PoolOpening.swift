import FoundationEssentials
import GRDB

extension Configuration {
    /// Opens a pool and applies the busy mode while opening. SQLite doesn't call the busy handler when a store switches
    /// to write-ahead mode while another connection writes it or does the same: the switching connection has begun to
    /// read, so it gives up at once (https://sqlite.org/c3ref/busy_handler.html). Throws GRDB's errors and
    /// `CancellationError`.
    func openPool(at url: URL) async throws -> DatabasePool {
        let start = ContinuousClock.now
        var attempts = 0
        while true {
            do {
                return try DatabasePool(path: url.path, configuration: self)
            } catch let error as DatabaseError
                where error.resultCode == .SQLITE_BUSY && shouldRetry(attempts, since: start)
            {
                attempts += 1
                // No event reports the release of a lock.
                try await Task.sleep(for: .milliseconds(Int.random(in: 2...20)))
            }
        }
    }

    private func shouldRetry(_ attempts: Int, since start: ContinuousClock.Instant) -> Bool {
        switch busyMode {
        // Another process that opens the store at the same moment is no reason to fail: that is over in an instant.
        case .immediateError: start.duration(to: .now) < .seconds(1)
        case .timeout(let seconds): start.duration(to: .now) / .seconds(1) < seconds
        case .callback(let callback): callback(attempts)
        }
    }
}
