import Glibc
import LinuxSystem
import SQLiteStore
import Synchronization
import SystemPackage

/// A search through a table of the store, joined with the migrated copy. It reads the halves of a large table at the
/// same time, the second one on a thread and a connection of its own.
struct RowSearch {
    /// The fewest keys for which a second connection is worth its memory and time.
    private static let minimumKeys: Int64 = 20_000
    /// The interval at which a wait for the second half looks for a cancellation.
    private static let pollingInterval = Duration.milliseconds(50)

    private let reader: ComparisonReader
    private let before: FilePath
    private let after: FilePath
    private let isCancelled: () -> Bool

    init(_ reader: ComparisonReader, before: FilePath, after: FilePath, isCancelled: @escaping () -> Bool) {
        self.reader = reader
        self.before = before
        self.after = after
        self.isCancelled = isCancelled
    }

    /// Returns true if a row fulfils a condition.
    ///
    /// - Parameters:
    ///   - condition: An SQL condition on the row `b` of the store and the row `a` of the copy.
    ///   - rows: The joined tables.
    ///   - old: The table of the store.
    func finds(_ condition: String, in rows: String, of old: String) throws -> Bool {
        func query(_ range: String) -> String { "SELECT 1 FROM \(rows) WHERE \(range)(\(condition)) LIMIT 1" }
        guard let middle = try middle(of: old),
            let second = SecondHalf(query("b.Z_PK >= \(middle) AND "), before: before, after: after)
        else { return try reader.integer(query("")) != nil }
        let first = Result { try reader.integer(query("b.Z_PK < \(middle) AND ")) != nil }
        // Nobody may write to the files while the second half reads them.
        if (try? first.get()) != false { second.stop() }
        while !second.waits(for: Self.pollingInterval) { if isCancelled() { second.stop() } }
        return try first.get() || second.result()
    }

    /// Returns a key in the middle of a table; nil if it is not worth halving.
    private func middle(of table: String) throws -> Int64? {
        guard sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1,
            let first = try reader.integer("SELECT min(Z_PK) FROM \(table) NOT INDEXED"),
            let last = try reader.integer("SELECT max(Z_PK) FROM \(table) NOT INDEXED")
        else { return nil }
        let (keys, overflow) = last.subtractingReportingOverflow(first)
        return overflow || keys < Self.minimumKeys ? nil : first + keys / 2
    }
}

/// A query that runs on its own thread and connection.
private final class SecondHalf: Sendable {
    /// The memory for pages of each database, in KiB. Both are read from their beginning to their end.
    private static let cacheSize = 2048

    private let shared: Shared
    private let thread: SystemThread

    private final class Shared: Sendable {
        let isStopped = Atomic(false)
        let found = Mutex<Result<Bool, any Error>?>(nil)
    }

    /// Returns nil if there can be no other thread.
    init?(_ query: String, before: FilePath, after: FilePath) {
        let shared = Shared()
        let thread = try? SystemThread(name: "gs-audit") {
            let result = Result {
                let reader = try ComparisonReader(after, beside: before, cacheSize: Self.cacheSize)
                reader.interrupt { shared.isStopped.load(ordering: .relaxed) }
                return try reader.integer(query) != nil
            }
            shared.found.withLock { $0 = result }
        }
        guard let thread else { return nil }
        self.shared = shared
        self.thread = thread
    }

    /// Makes the query end with an error.
    func stop() { shared.isStopped.store(true, ordering: .relaxed) }

    /// Waits for the query. Returns false if it hasn't ended.
    func waits(for duration: Duration) -> Bool { thread.join(within: duration) }

    /// Returns true if the query had a row. Throws `StoreError`.
    func result() throws -> Bool { try shared.found.withLock { $0 }?.get() ?? true }
}
