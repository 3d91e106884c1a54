import GRDB
import SQLiteFormat

/// What a history forgets, and who still needs it.
package struct HistoryMaintenance {
    private let location: StoreLocation
    private let installation: HistoryInstallation

    /// Which changes to forget. Several limits: what any of them is about.
    package struct Purge: Sendable, Equatable {
        /// Older than this many seconds.
        package var age: Double?
        /// More than this many.
        package var count: Int64?
        /// That all named subscribers have acknowledged.
        package var acknowledged = false
        /// Also what a named subscriber has not acknowledged.
        package var force = false

        package init() {}
    }

    package struct Outcome: Sendable, Equatable {
        package let purged: Int64
        package let left: Int64
        /// A subscriber that kept changes from being purged.
        package let heldBy: String?
    }

    package init(_ location: StoreLocation, busyTimeout: Duration = .seconds(10)) {
        self.location = location
        installation = HistoryInstallation(location, busyTimeout: busyTimeout)
    }

    /// The last change always stays: numbers go on from it. Throws `StoreError`, `SystemError`, `HistoryError`.
    package func purge(_ purge: Purge) throws -> Outcome {
        try write { database in
            let all = try count(database)
            let last = try Int64.fetchOne(database, sql: "SELECT max(number) FROM GS_CHANGE") ?? 0
            // Numbers may be anything in a table that somebody else may write to.
            var bound = min(try wanted(purge, database), last == .min ? last : last - 1)
            var holder: String?
            let slowest = try Row.fetchOne(
                database, sql: "SELECT name, number FROM GS_SUBSCRIBER ORDER BY number, name LIMIT 1")
            if let slowest, !purge.force, let number = slowest.decoded("number", as: Int64.self), number < bound {
                (bound, holder) = (number, slowest.decoded("name"))
            }
            // A change goes with the rows before it that say which columns it assigned.
            let trimmed = try Row.fetchOne(
                database,
                sql: """
                    SELECT number, nonce FROM GS_CHANGE WHERE number <= ? AND \(Self.isChange)
                    ORDER BY number DESC LIMIT 1
                    """, arguments: [bound])
            if let trimmed, let number = trimmed.decoded("number", as: Int64.self),
                let nonce = trimmed.decoded("nonce", as: Int64.self)
            {
                try database.execute(
                    sql: "UPDATE GS_HISTORY SET trimmed = ?, trimmed_nonce = ?", arguments: [number, nonce])
                try database.execute(sql: "DELETE FROM GS_CHANGE WHERE number <= ?", arguments: [number])
            }
            // No statement is in the middle of its work now.
            try database.execute(
                sql: """
                    DELETE FROM GS_REPLACED;
                    DELETE FROM GS_TABLE WHERE installed = 0 AND id NOT IN (SELECT table_id FROM GS_CHANGE);
                    """)
            let left = try count(database)
            return Outcome(purged: all - left, left: left, heldBy: holder)
        }
    }

    private static let isChange = "operation <> \(HistorySchema.assignment)"

    private func count(_ database: Database) throws -> Int64 {
        try Int64.fetchOne(database, sql: "SELECT count(*) FROM GS_CHANGE WHERE \(Self.isChange)") ?? 0
    }

    /// The highest number to be forgotten, named subscribers not looked at.
    private func wanted(_ purge: Purge, _ database: Database) throws -> Int64 {
        var bound: Int64 = 0
        if let age = purge.age {
            // Clocks go back: everything before the last old one.
            bound =
                try Int64.fetchOne(
                    database,
                    sql: """
                        SELECT max(number) FROM GS_CHANGE
                        WHERE time < julianday('now') - ? / 86400.0 AND \(Self.isChange)
                        """, arguments: [age]) ?? 0
        }
        if let count = purge.count {
            let first = try Int64.fetchOne(
                database,
                sql: "SELECT number FROM GS_CHANGE WHERE \(Self.isChange) ORDER BY number DESC LIMIT 1 OFFSET ?",
                arguments: [count])
            bound = max(bound, first ?? 0)
        }
        if purge.acknowledged {
            bound = max(bound, try Int64.fetchOne(database, sql: "SELECT min(number) FROM GS_SUBSCRIBER") ?? 0)
        }
        return bound
    }

    /// Notes that the subscriber knows all up to the token; one that isn't known yet is made. Going back is not
    /// undone by what was purged: it throws `StoreHistory.Discontinuity`, as for a token that the store doesn't know.
    package func acknowledge(_ token: HistoryToken, by subscriber: String) throws {
        try write { database in
            try check(token, database)
            try database.execute(
                sql: """
                    INSERT INTO GS_SUBSCRIBER (name, number, nonce, time) VALUES (?, ?, ?, julianday('now'))
                    ON CONFLICT (name) DO UPDATE SET nonce = iif(excluded.number >= number, excluded.nonce, nonce),
                    number = max(number, excluded.number), time = excluded.time
                    """, arguments: [subscriber, token.number, token.nonce])
        }
    }

    /// False when there is no such subscriber.
    package func forget(subscriber: String) throws -> Bool {
        try write { database in
            try database.execute(sql: "DELETE FROM GS_SUBSCRIBER WHERE name = ?", arguments: [subscriber])
            return database.changesCount > 0
        }
    }

    private func check(_ token: HistoryToken, _ database: Database) throws {
        let row = try Row.fetchOne(database, sql: "SELECT identifier, trimmed, trimmed_nonce FROM GS_HISTORY")
        guard row?.decoded("identifier", as: String.self) == token.history else {
            throw StoreHistory.Discontinuity.epoch
        }
        let trimmed = row?.decoded("trimmed", as: Int64.self) ?? 0
        if token.number < trimmed { throw StoreHistory.Discontinuity.trimmed }
        let nonce =
            token.number == trimmed
            ? row?.decoded("trimmed_nonce", as: Int64.self) ?? 0
            : try Int64.fetchOne(
                database, sql: "SELECT nonce FROM GS_CHANGE WHERE number = ?", arguments: [token.number])
        guard nonce == token.nonce else { throw StoreHistory.Discontinuity.epoch }
    }

    private func write<Result>(_ body: (Database) throws -> Result) throws -> Result {
        switch try installation.kindWithoutHistory() {
        case nil: break
        case .coreData?: throw HistoryError.coreDatas(location.path)
        default: throw HistoryError.disabled(location.path)
        }
        return try installation.write { database in
            guard try HistoryTables.exist(database) else {
                let isCoreDatas = try HistoryTables.areCoreData(database)
                throw isCoreDatas ? HistoryError.coreDatas(location.path) : HistoryError.disabled(location.path)
            }
            try HistoryTables.checkVersion(database, location.path)
            return try body(database)
        }
    }
}
