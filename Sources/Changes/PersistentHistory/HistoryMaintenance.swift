import SQLiteFormat
import SQLiteStore

/// Purges a store's history and records which changes its named subscribers have acknowledged.
package struct HistoryMaintenance {
    private let location: StoreLocation
    private let installation: HistoryInstallation

    /// The changes to purge. If several limits are set, a change that any of them covers is purged.
    package struct Purge: Sendable, Equatable {
        /// Purges changes older than this many seconds.
        package var age: Double?
        /// Purges all but the newest changes, of which this many stay.
        package var count: Int64?
        /// True to purge the changes that all named subscribers have acknowledged.
        package var acknowledged = false
        /// True to purge even changes that a named subscriber hasn't acknowledged.
        package var force = false

        package init() {}
    }

    package struct Outcome: Sendable, Equatable {
        package let purged: Int64
        package let left: Int64
        /// The subscriber that kept changes from being purged.
        package let heldBy: String?
    }

    package init(_ location: StoreLocation, busyTimeout: Duration = .seconds(10)) {
        self.location = location
        installation = HistoryInstallation(location, busyTimeout: busyTimeout)
    }

    /// Purges changes. The last change always stays, because numbering continues from it. Throws `StoreError`,
    /// `SystemError`, `HistoryError`.
    package func purge(_ purge: Purge) throws -> Outcome {
        try write { database in
            let all = try count(database)
            let last = try database.firstInteger("SELECT max(number) FROM GS_CHANGE") ?? 0
            // The table may hold any numbers, because other programs may write to it.
            var bound = min(try upperBound(purge, database), last == .min ? last : last - 1)
            var holder: String?
            let slowest = try database.rows(
                "SELECT name, number FROM GS_SUBSCRIBER ORDER BY number, name LIMIT 1"
            ) { (name: $0.decodedText(0), number: $0.decodedInteger(1)) }.first
            if let slowest, !purge.force, let number = slowest.number, number < bound {
                (bound, holder) = (number, slowest.name)
            }
            // A change is purged together with the rows before it that say which columns it assigned.
            let trimmed = try database.rows(
                """
                SELECT number, nonce FROM GS_CHANGE WHERE number <= ? AND \(Self.isChange)
                ORDER BY number DESC LIMIT 1
                """, [.integer(bound)]
            ) { (number: $0.decodedInteger(0), nonce: $0.decodedInteger(1)) }.first
            if let number = trimmed?.number, let nonce = trimmed?.nonce {
                try database.execute(
                    "UPDATE GS_HISTORY SET trimmed = ?, trimmed_nonce = ?", [.integer(number), .integer(nonce)])
                try database.execute("DELETE FROM GS_CHANGE WHERE number <= ?", [.integer(number)])
            }
            // No statement is in progress now.
            try database.execute(
                script: """
                    DELETE FROM GS_REPLACED;
                    DELETE FROM GS_TABLE WHERE installed = 0 AND id NOT IN (SELECT table_id FROM GS_CHANGE);
                    """)
            let left = try count(database)
            return Outcome(purged: all - left, left: left, heldBy: holder)
        }
    }

    private static let isChange = HistorySchema.isChange

    private func count(_ database: SQLiteConnection) throws -> Int64 {
        try database.firstInteger("SELECT count(*) FROM GS_CHANGE WHERE \(Self.isChange)") ?? 0
    }

    /// Returns the highest number to purge, ignoring named subscribers.
    private func upperBound(_ purge: Purge, _ database: SQLiteConnection) throws -> Int64 {
        var bound: Int64 = 0
        if let age = purge.age {
            // Clocks may go back, so everything before the last old change is purged.
            bound =
                try database.firstInteger(
                    """
                    SELECT max(number) FROM GS_CHANGE
                    WHERE time < julianday('now') - ? / 86400.0 AND \(Self.isChange)
                    """, [.real(age)]) ?? 0
        }
        if let count = purge.count {
            let first = try database.firstInteger(
                "SELECT number FROM GS_CHANGE WHERE \(Self.isChange) ORDER BY number DESC LIMIT 1 OFFSET ?",
                [.integer(count)])
            bound = max(bound, first ?? 0)
        }
        if purge.acknowledged {
            bound = max(bound, try database.firstInteger("SELECT min(number) FROM GS_SUBSCRIBER") ?? 0)
        }
        return bound
    }

    /// Records that the subscriber knows all changes up to the token, and creates the subscriber if needed. An
    /// acknowledgement never moves back. Throws `StoreHistory.Discontinuity` for a token that the store doesn't know or
    /// whose changes were purged.
    package func acknowledge(_ token: HistoryToken, by subscriber: String) throws {
        try write { database in
            try check(token, database)
            try database.execute(
                """
                INSERT INTO GS_SUBSCRIBER (name, number, nonce, time) VALUES (?, ?, ?, julianday('now'))
                ON CONFLICT (name) DO UPDATE SET nonce = iif(excluded.number >= number, excluded.nonce, nonce),
                number = max(number, excluded.number), time = excluded.time
                """, [.text(subscriber), .integer(token.number), .integer(token.nonce)])
        }
    }

    /// Removes a named subscriber. Returns false if there is no such subscriber.
    package func forget(subscriber: String) throws -> Bool {
        try write { database in
            try database.execute("DELETE FROM GS_SUBSCRIBER WHERE name = ?", [.text(subscriber)])
            return database.changes > 0
        }
    }

    private func check(_ token: HistoryToken, _ database: SQLiteConnection) throws {
        let row = try database.prepare("SELECT identifier, trimmed, trimmed_nonce FROM GS_HISTORY")
        guard try row.step(), row.decodedText(0) == token.history else { throw StoreHistory.Discontinuity.epoch }
        let trimmed = row.decodedInteger(1) ?? 0
        if token.number < trimmed { throw StoreHistory.Discontinuity.trimmed }
        let nonce =
            token.number == trimmed
            ? row.decodedInteger(2) ?? 0
            : try database.firstInteger("SELECT nonce FROM GS_CHANGE WHERE number = ?", [.integer(token.number)])
        guard nonce == token.nonce else { throw StoreHistory.Discontinuity.epoch }
    }

    private func write<Success>(_ body: (StoreConnection) throws -> Success) throws -> Success {
        switch try installation.kindWithoutHistory() {
        case nil: break
        case .coreData?: throw HistoryError.ownedByCoreData(location.path)
        default: throw HistoryError.disabled(location.path)
        }
        return try installation.write { database in
            guard try HistorySchema.isKept(in: database) else {
                let isCoreData = try HistoryTables.coreDataTablesExist(database)
                throw isCoreData ? HistoryError.ownedByCoreData(location.path) : HistoryError.disabled(location.path)
            }
            try HistoryTables.checkVersion(database, location.path)
            return try body(database)
        }
    }
}
