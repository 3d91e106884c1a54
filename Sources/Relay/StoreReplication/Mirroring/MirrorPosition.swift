import PersistentHistory
import SQLiteStore

/// The state of the home that a mirror has. It is kept as a named subscriber of the mirror's history, which snapshots
/// and batches leave out.
struct MirrorPosition: Equatable {
    /// The shadow's.
    let epoch: UInt64
    /// The shadow's last step that the mirror has.
    var step: UInt64
    /// The version of the home's schema as SQLite counts it.
    var schemaVersion: Int64

    private static let prefix = "pages:"

    init(epoch: UInt64, step: UInt64, schemaVersion: Int64) {
        (self.epoch, self.step, self.schemaVersion) = (epoch, step, schemaVersion)
    }

    /// Reads it. Returns nil if the database isn't a finished mirror.
    init?(_ database: SQLiteConnection) throws {
        let row = try database.prepare("SELECT name FROM main.GS_SUBSCRIBER WHERE name GLOB '\(Self.prefix)*'")
        guard try row.step(), let name = row.text(0) else { return nil }
        let parts = name.dropFirst(Self.prefix.count).split(separator: ":")
        guard parts.count == 3, let epoch = UInt64(parts[0], radix: 16), let step = UInt64(parts[1]),
            let version = Int64(parts[2])
        else { return nil }
        self.init(epoch: epoch, step: step, schemaVersion: version)
    }

    /// Writes it, in the transaction that leads there. It needs none of the changes so far.
    func write(_ database: SQLiteConnection) throws {
        let now = try RecordedPosition(database)
        try database.execute("DELETE FROM main.GS_SUBSCRIBER WHERE name GLOB '\(Self.prefix)*'")
        try database.execute(
            "INSERT INTO main.GS_SUBSCRIBER (name, number, nonce, time) VALUES (?, ?, ?, julianday('now'))",
            [
                .text("\(Self.prefix)\(String(epoch, radix: 16)):\(step):\(schemaVersion)"), .integer(now.number),
                .integer(now.nonce),
            ])
    }
}
