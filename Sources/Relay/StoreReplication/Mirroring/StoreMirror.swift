import Glibc
import LinuxSystem
import PersistentHistory
import RowShadow
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A private copy of a home that keeps no history. The copy keeps one: it is what the relay publishes for the home.
///
/// The home's pages say which rows differ (`RowFollower`), and one transaction brings the copy from a state of the home
/// to a later one, and records the rows in the copy's history. Nothing is written to the home, and no trigger runs.
///
/// Invariant: the copy has exactly the rows that the shadow had after the step that the copy's own row names
/// (`MirrorPosition`). That row is written in the same transaction. After a crash of the machine the shadow is another
/// one, and the rows that differ from it are written and recorded. Wherever rows alone don't lead to the home's state,
/// as after a change of the schema, the copy is made anew with another history, and followers take a snapshot.
///
/// The shadow's pages have checksums, and SQLite's have none: a step's row is written only over the row that the home
/// had, and before a snapshot the copy is compared with the shadow (`prove`).
///
/// Confined to one thread.
package final class StoreMirror {
    /// The copy.
    package let location: StoreLocation
    /// The home's path, which errors name.
    package var homePath: FilePath { home.path }
    /// The copy's directory, which has the shadow of the home too.
    package var path: FilePath { slot.directory.path }

    let home: StoreLocation
    private let slot: ShadowPlace.Slot
    let follower: RowFollower
    private var position: MirrorPosition?
    /// The tables of the copy; nil until they are read. Its schema never changes.
    private var schema: DatabaseSchema?
    /// The shadow's revision that the copy has.
    var revision: UInt64?
    /// True if something other than transactions in the log may have written the home.
    private var comparesAll = true
    /// The reason for which the copy was last made; nil if it wasn't.
    package private(set) var renewal: Renewal?
    /// The number of times that the copy was made.
    package private(set) var copies = 0
    private let isCancelled: () -> Bool
    /// The identifiers of the copy's histories, the present one last.
    private var histories: [String]
    /// The home's file whose state the copy has.
    private var file: FileIdentity

    /// The reason for which a copy is made.
    package enum Renewal: String, Sendable {
        case first, schema, damaged
        /// SQLite can't write the home's rows as they are, or too many differ.
        case rows
    }

    private static let historiesName: FilePath.Component = "histories"
    /// The number of identifiers that are kept.
    private static let maxHistories = 64
    /// The size above which the list isn't one of ours, in bytes.
    private static let maxHistoriesSize = 16 << 10
    private static let patience = Duration.seconds(2)
    /// The changes that stay after a purge, and those above which there is one.
    private static let (keptChanges, maxChanges): (Int64, Int64) = (100_000, 200_000)

    /// Returns true if a store keeps no history, so that a mirror publishes it.
    ///
    /// Throws `StoreError.missing` if there is none, which says nothing about its history; `.busy` if it can't be read
    /// now, or is empty; `ReplicationError.abandonedJournal`, other `StoreError`s, and `SystemError`.
    package static func isNeeded(for home: StoreLocation) throws -> Bool {
        try translating(home.path) {
            guard let tables = try StoreTables.statements(ofStoreAt: home.path) else {
                let isThere = FileStatus(following: home.path)?.kind == .regular
                throw isThere ? try unreadable(home) : StoreError.missing(home.path)
            }
            return !HistorySchema.isKept(by: tables)
        }
    }

    /// Returns the error of a home that can't be read now.
    private static func unreadable(_ home: StoreLocation) throws -> any Error {
        try home.hasAbandonedJournal() ? ReplicationError.abandonedJournal(home.path) : StoreError.busy(home.path)
    }

    /// Opens the mirror of a home, or makes it.
    ///
    /// - Parameters:
    ///   - directory: The mirror's place, in which it has a directory of its own. It is created.
    ///   - isCancelled: Called from time to time. If it returns true, work ends with `StoreError.isInterruption`.
    ///
    /// Throws `StoreError.busy` if another process uses the mirror, other `StoreError`s, and `SystemError`.
    package init(
        of home: StoreLocation, in directory: FilePath, isCancelled: @escaping () -> Bool = { false }
    ) throws {
        (self.home, self.isCancelled) = (home, isCancelled)
        (slot, follower, location) = try Self.translating(home.path) {
            let slot = try ShadowPlace(path: directory).takeSlot(epoch: nil)
            guard slot.isFirst else { throw StoreError.busy(directory) }
            let name = try Self.name()
            let follower = try RowFollower(home.path, slot, limit: .max, within: Self.patience)
            return (slot, follower, StoreLocation(directory: slot.directory, name: name))
        }
        histories = try Self.histories(slot)
        file = follower.shadow.identity
        // A damaged one is made anew, and one that wasn't read to its end is kept.
        do { position = try known() } catch let error as StoreError where error.isInterruption { throw error } catch {}
    }

    deinit { try? follower.shadow.close() }

    private static func name() throws -> StoreName {
        guard let name = StoreName("mirror.sqlite") else { throw SystemError("open", .fileNameTooLong) }
        return name
    }

    private static func histories(_ slot: ShadowPlace.Slot) throws -> [String] {
        let text = try DurableFile.read(historiesName, in: slot.directory, limit: maxHistoriesSize)
        return String(decoding: text ?? [], as: UTF8.self).split(separator: "\n").map(String.init)
    }

    /// Returns the identifiers of the histories that the mirror of a home had which keeps a history by now; none if the
    /// mirror is of another file, which may be another store, or if there is none. Throws as `retire`.
    package static func histories(in directory: FilePath, of home: StoreLocation) throws -> [String] {
        guard let slot = try takeSlot(in: directory), try slot.isShadow(of: home.path) else { return [] }
        return try histories(slot)
    }

    /// Removes the copies of a home that keeps a history by now, which is published. Throws `StoreError.busy` if
    /// another process uses the mirror, and `SystemError`.
    package static func retire(in directory: FilePath) throws {
        guard let slot = try takeSlot(in: directory) else { return }
        try slot.removeShadow()
        for file in try name().sideFiles + [name().database] { try slot.directory.removeFile(file) }
    }

    /// Locks the directory of a mirror that isn't used any more. Returns nil if there is none.
    private static func takeSlot(in directory: FilePath) throws -> ShadowPlace.Slot? {
        guard FileStatus(following: directory.appending("0")) != nil else { return nil }
        let slot = try ShadowPlace(path: directory).takeSlot(epoch: nil)
        guard slot.isFirst else { throw StoreError.busy(directory) }
        return slot
    }

    /// The size of the copy in bytes.
    package var size: Int64 { follower.shadow.size }

    /// True if the copy has, or had, the history with this identifier.
    package func has(history: String) -> Bool { histories.contains(history) }

    /// Records that something other than transactions in the log may have written the home.
    package func recordOtherWrites() { comparesAll = true }

    /// Brings the copy to the home's present state. This process must have no connection to the copy meanwhile.
    ///
    /// Throws `StoreError.busy` if the home can't be read now and `.missing` if there is none; `ReplicationError`, such
    /// as `abandonedJournal`, `HistoryError`, other `StoreError`s and `SystemError`. The copy has one of the home's
    /// states then, or none.
    package func advance() throws {
        try ReplicableStore.checkSupport(of: home)
        try Self.translating(home.path) {
            switch try advanceShadow() {
            case .busy: throw try Self.unreadable(home)
            case .absent: throw StoreError.missing(home.path)
            case .current, .partly: comparesAll = false
            }
            try update()
        }
    }

    /// Removes the oldest changes of the copy's history if there are many. Call it when all of them are published: a
    /// follower that lacks removed ones takes a snapshot.
    package func purge() throws {
        guard lastChange - purgedUpTo > Self.maxChanges else { return }
        var purge = HistoryMaintenance.Purge()
        (purge.count, purge.force) = (Self.keptChanges, true)
        _ = try HistoryMaintenance(location).purge(purge)
        purgedUpTo = lastChange - Self.keptChanges
    }

    /// The number of the copy's last change, and the one up to which changes are purged.
    private var (lastChange, purgedUpTo) = (Int64(0), Int64(0))

    private func advanceShadow() throws -> RowFollower.Outcome {
        do { return try follower.advance(comparesAll: comparesAll) } catch RowShadowError.damaged {
            try follower.remake()
            return try follower.advance(comparesAll: true)
        }
    }

    /// Runs work on the shadow, and gives its errors the type that all of the relay's have for a store.
    static func translating<Success>(_ path: FilePath, _ body: () throws -> Success) throws -> Success {
        do { return try body() } catch let error as RowShadowError {
            switch error {
            case .busy, .damaged, .tooLarge: throw StoreError.busy(path)
            case .absent: throw StoreError.missing(path)
            case .unreadable: throw StoreError.corrupt(code: 26, message: "file is not a database", path)
            case .noSpace(let path, _): throw StoreError(code: 13, message: "database or disk is full", path: path)
            }
        }
    }

    // MARK: - The copy

    /// Rows don't lead to the home's state.
    private struct NeedsCopy: Error { let reason: Renewal }

    func update() throws {
        guard revision != follower.shadow.revision else { return }
        do { try bringToShadow() } catch RowShadowError.damaged {
            // Without the steps in its log, the rows that differ are written.
            try follower.remake()
            try bringToShadow()
        }
        (revision, file) = (follower.shadow.revision, follower.shadow.identity)
    }

    private func bringToShadow() throws {
        do {
            guard let position else { throw NeedsCopy(reason: histories.isEmpty ? .first : .damaged) }
            self.position = try apply(after: position)
        } catch let error as NeedsCopy {
            try make(error.reason)
        } catch is MirrorWriter.UnknownRows {
            try make(.rows)
        } catch is MirrorComparison.TooManyDifferences {
            try make(.rows)
        } catch is MirrorWriter.ForeignRow {
            try make(.damaged)
        } catch let error as StoreError where error.isConstraint {
            // The home has a row that SQLite doesn't accept again.
            try make(.rows)
        } catch let failure where mayBeDamaged(after: failure) {
            try make(.damaged)
        }
    }

    /// Returns true if an error of the copy's readers may come of damage in it.
    package func mayBeDamaged(after error: any Error) -> Bool {
        // Another one is made anyway.
        guard position != nil else { return false }
        return switch error {
        case let error as StoreError where error.path == location.path:
            switch error {
            case .busy, .superJournalElsewhere: false
            case .sqlite: error.isOfStatement
            default: true
            }
        case let error as HistoryError: error.errorPath == location.path
        case ReplicationError.unreplicable: true
        default: false
        }
    }

    /// Makes the copy anew with the next `advance`, because what was read of it is damaged.
    package func recordDamage() { (position, schema, revision) = (nil, nil, nil) }

    private func connect() throws -> ReplicaConnection {
        let connection = try ReplicaConnection(location, busyTimeout: Self.patience)
        connection.interrupt(when: isCancelled)
        // What is published stays committed after a crash of the machine.
        try connection.execute("PRAGMA synchronous = EXTRA")
        return connection
    }

    func connectWithHome() throws -> ReplicaConnection {
        let connection = try connect()
        try connection.acceptShadowTables()
        try connection.attach(unchanging: follower.shadow.pagesPath, as: HomeState.name)
        return connection
    }

    /// Applies the steps after a position in one transaction; if the shadow no longer has them, all rows that differ.
    /// Between steps the rest of the home's state, such as `sqlite_sequence`, isn't known.
    private func apply(after position: MirrorPosition) throws -> MirrorPosition {
        let shadow = follower.shadow
        let connection = try connectWithHome()
        let schema = try self.schema ?? DatabaseSchema(connection)
        self.schema = schema
        return try connection.transaction(.immediate) {
            guard try MirrorPosition(connection) == position,
                try RecordedPosition(connection).identifier == histories.last
            else { throw NeedsCopy(reason: .damaged) }
            let home = HomeState(connection)
            let hasSteps = try position.epoch == shadow.epoch && shadow.continuity(after: position.last) == .continuous
            let version = try home.schemaVersion()
            // VACUUM changes the version too, and so does another database with the same tables, but other indexes.
            if !hasSteps || version != position.schemaVersion {
                guard try home.hasSameSchema() else { throw NeedsCopy(reason: .schema) }
            }
            let writer = try MirrorWriter(connection, schema)
            var (last, isNet) = (position.last, false)
            if hasSteps {
                while let reader = try shadow.step(after: last.step) {
                    isNet = isNet || reader.step.kind == .net
                    try writer.apply(reader)
                    last = StepPosition(reader.step)
                }
            } else {
                try writer.adoptHome()
                last = try shadow.lastPosition()
            }
            try writer.check()
            if isNet { guard try home.hasSameSchema() else { throw NeedsCopy(reason: .schema) } }
            if try !home.hasSameSettings() { try home.copySettings() }
            let next = MirrorPosition(epoch: shadow.epoch, last: last, schemaVersion: version)
            try next.write(connection)
            lastChange = max(lastChange, writer.lastChange)
            return next
        }
    }

    // MARK: - Another copy

    /// Makes the copy anew, with another history. What the former one had is in the home, or was.
    func make(_ reason: Renewal) throws {
        renewal = reason
        copies += 1
        do { try copyShadow() } catch let error as StoreError {
            guard case .corrupt(let code, let message, _) = error else { throw error }
            // Another program copies something over the home just now; or it is damaged, which its owner may mend.
            throw StoreError.sqlite(code: code, message: message, home.path)
        }
    }

    private func copyShadow() throws {
        let shadow = follower.shadow
        // A program that copies another file over the home begins with that.
        guard shadow.size > 0 else { throw StoreError.busy(home.path) }
        (position, schema, revision) = (nil, nil, nil)
        for name in location.name.sideFiles + [location.name.database] { try slot.directory.removeFile(name) }
        let source = try Descriptor(opening: shadow.pagesPath, flags: O_RDONLY | O_NOFOLLOW)
        let target = try slot.directory.open(location.name.database, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        var copy = FileCopy(from: shadow.pagesPath, to: location.path)
        copy.checksHoles = false
        _ = try copy.run(from: source, to: target)
        let version: Int64
        do {
            // It has no log beside it.
            let database = try StoreWriter(location.path)
            version = try database.integer("PRAGMA main.schema_version") ?? 0
            try database.execute("PRAGMA journal_mode = DELETE")
            if try HistorySchema.isKept(in: database) || database.hasTables("ACHANGE", "ATRANSACTION") {
                // The home keeps a history since: the next session publishes that. Another file may be another store.
                if shadow.identity != file {
                    try slot.directory.removeFile(Self.historiesName)
                    histories = []
                }
                throw StoreHistory.Discontinuity.schema
            }
            let schema = try DatabaseSchema(database)
            if let name = HistorySchema.foreignTable(in: schema) { throw HistoryError.foreign(name, home.path) }
            if let name = HistorySchema.foreignTrigger(in: schema) {
                throw HistoryError.foreign("the trigger \(name)", home.path)
            }
            if let name = HistorySchema.leftover(in: schema) {
                throw ReplicationError.unreplicable(
                    object: name, reason: "it is left of a history that was dropped in part", home.path)
            }
        }
        _ = try HistoryInstallation(location).enable()
        try target.synchronize(path: location.path)
        try slot.directory.synchronize()
        let connection = try connect()
        let history = try RecordedPosition(connection).identifier
        histories = (histories + [history]).suffix(Self.maxHistories)
        // Before anything of it is published.
        let list = Array((histories.joined(separator: "\n") + "\n").utf8)
        try DurableFile.write(list, as: Self.historiesName, in: slot.directory, mode: 0o600)
        let position = MirrorPosition(
            epoch: shadow.epoch, last: try shadow.lastPosition(), schemaVersion: version)
        try connection.transaction(.immediate) { try position.write(connection) }
        (self.position, lastChange, purgedUpTo) = (position, 0, 0)
    }

    /// Reads the position of the copy that is there; nil if there is none.
    private func known() throws -> MirrorPosition? {
        guard try slot.directory.status(location.name.database) != nil else { return nil }
        let connection = try connect()
        guard try connection.text("PRAGMA quick_check(1)") == "ok", try HistorySchema.isWhole(connection) else {
            return nil
        }
        let recorded = try RecordedPosition(connection)
        // An identifier that is damaged would be published, and none of this home's would follow.
        guard recorded.identifier == histories.last else { return nil }
        (lastChange, purgedUpTo) = (recorded.number, recorded.trimmed)
        return try MirrorPosition(connection)
    }
}
