import LinuxSystem
import SQLiteFormat

/// Reads a store again and again over one connection, as long as other programs have its log open too. It takes longer
/// to open a store than to read what has changed. Confined to one thread.
///
/// Between two reads the connection has no transaction, but holds the lock of every program that has the store open:
/// nobody else has the store for itself, and who closes it last leaves the log. So close it soon; a read that comes
/// later opens the store again. While it holds the connection, nothing else may read or write the store on this thread
/// (`StoreReader`).
package final class ReusableReader {
    private struct Held {
        let reader: StoreReader
        let files: FileFingerprint
        let opened: ContinuousClock.Instant
        var used: ContinuousClock.Instant
    }

    private let location: StoreLocation
    private var held: Held?

    /// The time for which a connection that isn't used is held.
    package static let idleTimeout = Duration.milliseconds(100)
    /// The time after which the store is opened again, and read like one that nobody knows.
    private static let maximumAge = Duration.seconds(1)

    package init(_ location: StoreLocation) { self.location = location }

    /// True if it has a connection.
    package var isOpen: Bool { held != nil }

    package func close() { held = nil }

    /// Closes the connection if it wasn't used for `idleTimeout`.
    package func closeIfIdle() {
        if let held, held.used.duration(to: .now) >= Self.idleTimeout { close() }
    }

    /// Runs `body` on one consistent state of the store, as `StoreReader.read` does. If `body` throws over a connection
    /// that was held, or the store's files are others by then, it runs again over another one.
    package func read<Success>(_ body: (StoreReader) throws -> Success) throws -> Success {
        if let held, held.opened.duration(to: .now) < Self.maximumAge, let success = try? reread(held, body) {
            return success
        }
        close()
        return try StoreReader.read(
            location,
            keep: { reader, files in self.held = Held(reader: reader, files: files, opened: .now, used: .now) },
            body)
    }

    private struct OtherFiles: Error {}

    private func reread<Success>(_ held: Held, _ body: (StoreReader) throws -> Success) throws -> Success {
        try held.reader.beginNextRead()
        let success = try body(held.reader)
        try held.reader.execute("COMMIT")
        // Its descriptors keep the inodes in use: a file with the same number is the same file.
        guard try FileFingerprint(location).hasFiles(of: held.files) else { throw OtherFiles() }
        self.held?.used = .now
        return success
    }
}
