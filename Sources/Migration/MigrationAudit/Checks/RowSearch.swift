import Glibc
import LinuxSystem
import SQLiteStore
import Synchronization
import SystemPackage

/// A search through a table of the store, joined with the migrated copy, and the count of both tables' rows. It reads
/// the halves of a large table, or both tables, at the same time, the second one on a thread and a connection of its
/// own. Confined to one thread.
final class RowSearch {
    /// The fewest keys of a table that is worth a second thread.
    private static let minimumKeys: Int64 = 10_000
    /// The fewest keys if rows may be large, and the fewest pages of such a store.
    private static let minimumLargeRows: Int64 = 100
    private static let minimumPages: Int64 = 16_384
    /// The interval at which a wait for the second half looks for a cancellation.
    private static let pollingInterval = Duration.milliseconds(50)

    private let reader: ComparisonReader
    private let before: FilePath
    private let after: FilePath
    private let isCancelled: () -> Bool
    /// True if a second thread may read.
    private let usesSecondThread: Bool
    private var second: SecondReader?

    init(
        _ reader: ComparisonReader, before: FilePath, after: FilePath, usesSecondThread: Bool = true,
        isCancelled: @escaping () -> Bool
    ) {
        self.reader = reader
        self.usesSecondThread = usesSecondThread
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
        guard usesSecondThread, let middle = try middle(of: old),
            let half = try begin(query("b.Z_PK >= \(middle) AND "))
        else { return try reader.integer(query("")) != nil }
        let first = Result { try reader.integer(query("b.Z_PK < \(middle) AND ")) != nil }
        if (try? first.get()) != false { half.stop() }
        wait(for: half)
        return try first.get() || half.result() != nil
    }

    /// Returns true if a table of the store has as many rows as one of the copy.
    ///
    /// - Parameters:
    ///   - old: The table of the store.
    ///   - oldRows: Its rows: the table, with a condition.
    ///   - newRows: The rows of the copy's table.
    func isEqualCount(of oldRows: String, and newRows: String, in old: String) throws -> Bool {
        func count(_ rows: String) -> String { "SELECT count(*) FROM " + rows }
        guard usesSecondThread, try isLarge(old), let other = try begin(count(newRows)) else {
            return try reader.integer("SELECT (\(count(oldRows))) = (\(count(newRows)))") == 1
        }
        let first = Result { try reader.integer(count(oldRows)) }
        if (try? first.get()) == nil { other.stop() }
        wait(for: other)
        return try first.get() == other.result()
    }

    /// Waits for the second thread: nobody may write to the files while it reads them.
    private func wait(for half: SecondHalf) {
        while !half.waits(for: Self.pollingInterval) { if isCancelled() { half.stop() } }
    }

    /// Returns true if a table of the store is worth a second thread, and there is a processor for it.
    func isLarge(_ table: String) throws -> Bool { try middle(of: table) != nil }

    /// Returns a key in the middle of a table; nil if it is not worth halving.
    private func middle(of table: String) throws -> Int64? {
        guard sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1,
            let first = try reader.integer("SELECT min(Z_PK) FROM \(table) NOT INDEXED"),
            let last = try reader.integer("SELECT max(Z_PK) FROM \(table) NOT INDEXED")
        else { return nil }
        let (keys, overflow) = last.subtractingReportingOverflow(first)
        guard !overflow, keys >= Self.minimumLargeRows else { return nil }
        guard try keys >= Self.minimumKeys || reader.integer("PRAGMA was.page_count") ?? 0 >= Self.minimumPages else {
            return nil
        }
        return first + keys / 2
    }

    /// Begins to run a query; nil if there can be no other thread.
    private func begin(_ query: String) throws -> SecondHalf? {
        let second = try self.second ?? SecondReader(after, beside: before)
        self.second = second
        return SecondHalf(query, second)
    }
}

/// The connection of second halves.
///
/// @unchecked: only one thread at a time uses the connection, because the searching one waits for the other.
private final class SecondReader: @unchecked Sendable {
    /// The memory for pages of each database, in KiB. Both are read from their beginning to their end.
    private static let cacheSize = 2048

    let reader: ComparisonReader
    let isStopped = Atomic(false)

    init(_ path: FilePath, beside earlier: FilePath) throws {
        reader = try ComparisonReader(path, beside: earlier, cacheSize: Self.cacheSize)
        reader.interrupt { [unowned self] in isStopped.load(ordering: .relaxed) }
    }
}

/// A query for a number that runs on its own thread and connection.
private final class SecondHalf: Sendable {
    private let second: SecondReader
    private let found: Found
    private let thread: SystemThread

    private final class Found: Sendable { let value = Mutex<Result<Int64?, any Error>?>(nil) }

    /// Returns nil if there can be no other thread.
    init?(_ query: String, _ second: SecondReader) {
        second.isStopped.store(false, ordering: .relaxed)
        let found = Found()
        let thread = try? SystemThread(name: "gs-audit") {
            let result = Result { try second.reader.integer(query) }
            found.value.withLock { $0 = result }
        }
        guard let thread else { return nil }
        self.second = second
        self.found = found
        self.thread = thread
    }

    /// Makes the query end with an error.
    func stop() { second.isStopped.store(true, ordering: .relaxed) }

    /// Waits for the query. Returns false if it hasn't ended.
    func waits(for duration: Duration) -> Bool { thread.join(within: duration) }

    /// Returns the number in the query's row, or nil if it had none. Throws `StoreError`, and `CancellationError` if
    /// the query hasn't ended: that proves nothing.
    func result() throws -> Int64? {
        guard let result = found.value.withLock({ $0 }) else { throw CancellationError() }
        return try result.get()
    }
}
