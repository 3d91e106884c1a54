import PersistentHistory
import RowShadow
import SQLiteStore

/// The state of the home that a mirror has. It is kept as a named subscriber of the mirror's history, which snapshots
/// and batches leave out.
struct MirrorPosition: Equatable {
    /// The shadow's.
    let epoch: UInt64
    /// The shadow's last step that the mirror has.
    var last: StepPosition
    /// The version of the home's schema as SQLite counts it.
    var schemaVersion: Int64

    private static let prefix = "pages:"

    init(epoch: UInt64, last: StepPosition, schemaVersion: Int64) {
        (self.epoch, self.last, self.schemaVersion) = (epoch, last, schemaVersion)
    }

    /// Reads it. Returns nil if the database isn't a finished mirror.
    init?(_ database: SQLiteConnection) throws {
        let row = try database.prepare("SELECT name FROM main.GS_SUBSCRIBER WHERE name GLOB '\(Self.prefix)*'")
        guard try row.step(), let name = row.text(0) else { return nil }
        let parts = name.dropFirst(Self.prefix.count).split(separator: ":")
        guard parts.count == 3 || parts.count == 4, let epoch = UInt64(parts[0], radix: 16),
            let step = UInt64(parts[1]), let version = Int64(parts[2])
        else { return nil }
        // Without the step's fingerprint, nothing proves that the shadow's steps lead on from it.
        let fingerprint = parts.count == 4 ? UInt64(parts[3], radix: 16) : nil
        self.init(epoch: epoch, last: StepPosition(step: step, fingerprint: fingerprint), schemaVersion: version)
    }

    /// Writes it, in the transaction that leads there. It needs none of the changes so far.
    func write(_ database: SQLiteConnection) throws {
        let now = try RecordedPosition(database)
        let fingerprint = last.fingerprint.map { ":" + String($0, radix: 16) } ?? ""
        let name = "\(Self.prefix)\(String(epoch, radix: 16)):\(last.step):\(schemaVersion)\(fingerprint)"
        try database.execute("DELETE FROM main.GS_SUBSCRIBER WHERE name GLOB '\(Self.prefix)*'")
        try database.execute(
            "INSERT INTO main.GS_SUBSCRIBER (name, number, nonce, time) VALUES (?, ?, ?, julianday('now'))",
            [.text(name), .integer(now.number), .integer(now.nonce)])
    }
}
