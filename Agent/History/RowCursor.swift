import AgentProtocol
import PersistentHistory
import SQLiteFormat

/// The state of a subscription for which the store's history is read: the changes of the feed that it wasn't sent yet,
/// and its position in the history. A pure value.
struct RowCursor {
    /// Several changes of the feed as one.
    struct Pending: Equatable {
        var tables: ChangedTables
        /// The tables written by a transaction that recorded no row.
        var unrecorded: Set<ExactName>
        let first: UInt64
        var last: UInt64
        /// False if it only stands for file events that were lost, and nothing need have been committed.
        var hasCommit = true

        mutating func add(_ later: Pending) {
            hasCommit = hasCommit || later.hasCommit
            tables = tables.union(later.tables)
            unrecorded.formUnion(later.unrecorded)
            last = later.last
        }
    }

    enum Outcome: Equatable {
        case change(ChangedTables, rows: [JSONObject]?)
        case reset(StoreEvent.ResetReason)
        /// There were changes, but none for the subscriber.
        case leftOut
        /// The position is one in the copy of another file, and the reset that was sent for the file stands for all
        /// that was committed to it.
        case advanced
        case nothing
    }

    private let tables: TableFilter?
    private let filter: HistoryOperation.Filter
    private let wantsRows: Bool
    /// The changes since the last read of the history began.
    private(set) var pending: Pending?
    /// The changes from before the read in progress.
    private(set) var inRound: Pending?
    private(set) var isReading = false
    /// The position up to which the history was sent or left out; nil if there is none.
    private(set) var position: HistoryToken?
    /// True if another file may have come to the store's name, so that rows from pages have another position.
    private(set) var needsPosition = false
    /// The number of the event after which the position was asked for, if it is a reset after which the subscriber
    /// reads the file.
    private var resetNumber: UInt64?
    /// True if a migration was reported since the position was one of the present model.
    private var knowsMigration = false

    /// The maximum number of rows that are sent with a change.
    static let maximumRows = 64

    init(_ operation: SubscribeOperation) {
        tables = operation.tables
        filter = operation.filter
        wantsRows = operation.wantsRows
    }

    /// The number of the first change that it wasn't sent yet.
    var firstUndelivered: UInt64? { (inRound ?? pending)?.first }

    /// Sets the history position to start from.
    mutating func begin(at position: HistoryToken) { self.position = position }

    /// Records a change of the feed. `first`: the number of the first change, if there are several.
    mutating func record(_ changed: ChangedTables, number: UInt64, first: UInt64? = nil) {
        let new = Pending(
            tables: changed, unrecorded: HistoryTableNames.unrecorded(by: changed), first: first ?? number, last: number
        )
        if pending == nil { pending = new } else { pending?.add(new) }
    }

    /// Records that file events were lost. Returns false if the rows don't tell what they were of: only pages do.
    mutating func recordLoss(number: UInt64) -> Bool {
        guard position?.isOfPages == true else { return false }
        let new = Pending(tables: .unknown, unrecorded: [], first: number, last: number, hasCommit: false)
        if pending == nil { pending = new } else { pending?.add(new) }
        return true
    }

    /// Discards unsent changes: an event stands for all of them.
    mutating func discardUndelivered() {
        pending = nil
        inRound = nil
    }

    /// Asks for the position in rows from pages, after an event that may stand for another file. A history may have
    /// come with its file, and tells the position with the next change. Returns true if a read is needed.
    mutating func requestPosition(after event: StoreEvent, number: UInt64) -> Bool {
        resetNumber = Self.isFollowedByReading(event) ? number : nil
        needsPosition = position?.isOfPages == true
        return needsPosition
    }

    private static func isFollowedByReading(_ event: StoreEvent) -> Bool {
        switch event {
        case .reset(.vanished), .reset(.unreadable): false
        case .reset: true
        default: false
        }
    }

    /// Records a migration reported by the feed, so that the next read of the history needn't report it.
    mutating func recordMigration() { knowsMigration = true }

    /// Begins a read of the history.
    mutating func beginReading() {
        isReading = true
        needsPosition = false
        guard let later = pending.take() else { return }
        if inRound == nil { inRound = later } else { inRound?.add(later) }
    }

    /// True if the changes in the round may have recorded rows.
    var mayHaveRows: Bool { inRound.map { HistoryTableNames.mayHaveRecorded($0.tables) } ?? false }

    /// Ends a read, and returns what to send to the subscriber.
    ///
    /// - Parameters:
    ///   - credited: The tables whose rows an earlier read returned.
    ///   - isReturning: True if the position is from the subscriber's own token, of an earlier feed.
    ///   - lastNumber: The number of the last event, if there is one for each commit that the read may have found, and
    ///     a position can be sent by itself.
    mutating func finishReading(
        _ reading: HistoryReadResult, credited: Set<String> = [], isReturning: Bool = false, lastNumber: UInt64? = nil
    ) -> Outcome {
        let change = inRound.take()
        isReading = false
        let known = (model: position?.model, migration: knowsMigration)
        defer { if position?.model != known.model { knowsMigration = false } }
        switch reading {
        case .none:
            position = nil
            return Self.unattributed(change)
        case .failed: return Self.unattributed(change)
        case .position(let token):
            position = token
            return Self.unattributed(change)
        case .tooMany(let token):
            position = token
            return .change((isReturning ? nil : change?.tables) ?? .unknown, rows: nil)
        case .discontinued(let reason, let token):
            position = token
            if reason == .migrated, known.migration { return Self.unattributed(change) }
            // A client that requests batches needs the position with an event.
            if reason == .epoch, wantsRows, let lastNumber, lastNumber == resetNumber { return .advanced }
            return .reset(reason)
        case .page(let page):
            guard let known = position?.number else {
                position = page.token
                return Self.unattributed(change)
            }
            if page.token.number > known || page.isFromPages { position = page.token }
            if page.isFromPages, filter.needsHistory {
                let tables = ChangedTables(page.rows.compactMap { $0.string("table") }, isComplete: false)
                guard let change else { return page.rows.isEmpty ? .nothing : .change(tables, rows: nil) }
                return .change(change.tables.union(tables), rows: nil)
            }
            return attribute(page, change, after: known, credited: credited, isReturning: isReturning)
        }
    }

    /// Reports a change that can't be shown to be unwanted.
    private static func unattributed(_ change: Pending?) -> Outcome {
        guard let change else { return .nothing }
        return change.hasCommit ? .change(change.tables, rows: nil) : .reset(.overflow)
    }

    private func attribute(
        _ page: RowPage, _ change: Pending?, after known: Int64, credited: Set<String>, isReturning: Bool
    ) -> Outcome {
        if page.gaps.contains(where: { $0.number > known && isWanted($0.table) }) { return .reset(.historyGap) }
        let new = page.rows.filter { ($0.integer("number") ?? .max) > known }
        let admitted = new.filter { isWanted($0.string("table") ?? "") && filter.admits($0) }
        let rowTables = ChangedTables(new.compactMap { $0.string("table") }, isComplete: !isReturning)
        let tables = change.map { $0.tables.union(rowTables) } ?? rowTables
        if let change, !page.isFromPages, !isAttributed(change, page, credited) {
            return .change(tables, rows: nil)
        }
        if page.redefined.contains(where: { isWanted($0.text) }) {
            return .change(tables.union(ChangedTables(page.redefined.map(\.text), isComplete: true)), rows: nil)
        }
        if isReturning, page.isOutdated { return .change(tables.union(.unknown), rows: nil) }
        if !admitted.isEmpty {
            return .change(tables, rows: wantsRows && admitted.count <= Self.maximumRows ? admitted : nil)
        }
        guard let change else { return new.isEmpty ? .nothing : .leftOut }
        guard change.hasCommit else { return .leftOut }
        let others = HistoryTableNames.userTables(change.tables, ofReplica: page.isReplica).map(TableFilter.fold)
        let wasSent = !others.isEmpty && credited.isSuperset(of: others)
        guard filter.isEmpty, self.tables?.admits(change.tables) ?? true, !wasSent else { return .leftOut }
        return .change(change.tables, rows: wantsRows ? [] : nil)
    }

    /// True if the subscription is for the table. A row without a table name may be of any table.
    private func isWanted(_ table: String) -> Bool { table.isEmpty || tables?.admits(table) ?? true }

    /// True if there is a row for each table that was written and is wanted. Rows of other tables may hide nothing.
    private func isAttributed(_ change: Pending, _ page: RowPage, _ credited: Set<String>) -> Bool {
        guard change.tables.isComplete else { return false }
        let known = page.tables.union(credited)
        let tables = HistoryTableNames.recordable(change.tables, ofReplica: page.isReplica)
        let written = tables.filter { !known.contains(TableFilter.fold($0)) }
        let unrecorded = change.unrecorded.subtracting(page.isReplica ? [ExactName(HistorySchema.replicaTable)] : [])
        return unrecorded.allSatisfy { !isWanted($0.text) } && written.allSatisfy { !isWanted($0) }
    }
}

/// A store's tables as its history sees them.
enum HistoryTableNames {
    private static let records: Set<String> = ["GS_CHANGE", "ACHANGE"]
    /// The bookkeeping tables of SQLite and Core Data, which change along with other tables.
    private static let bookkeeping: Set<String> = [
        "sqlite_sequence", "sqlite_stat1", "sqlite_stat3", "sqlite_stat4", "ACHANGE", "ATRANSACTION",
        "ATRANSACTIONSTRING", "Z_PRIMARYKEY",
    ]

    /// Returns true if a transaction that wrote these tables may have recorded rows.
    static func mayHaveRecorded(_ tables: ChangedTables) -> Bool {
        !tables.isComplete || !records.isDisjoint(with: tables.names ?? [])
    }

    /// Returns the tables without bookkeeping and history tables. `GS_REPLICA` may be a program's own: only a replica's
    /// is left out.
    static func userTables(_ tables: ChangedTables, ofReplica isReplica: Bool) -> [String] {
        (tables.names ?? []).filter {
            !bookkeeping.contains($0) && !HistorySchema.requiredTables.contains($0)
                && !(isReplica && $0 == HistorySchema.replicaTable)
        }
    }

    /// Returns the user tables of a transaction that recorded no row at all.
    static func unrecorded(by tables: ChangedTables) -> Set<ExactName> {
        mayHaveRecorded(tables) ? [] : Set(userTables(tables, ofReplica: false).map { ExactName($0) })
    }

    /// Returns the tables whose changes have rows of their own. Core Data records the objects of a many-to-many
    /// relationship, not the rows of its join table.
    static func recordable(_ tables: ChangedTables, ofReplica isReplica: Bool) -> [String] {
        let isCoreData = tables.names?.contains("ACHANGE") ?? false
        return userTables(tables, ofReplica: isReplica).filter { !(isCoreData && $0.prefixMatch(of: /Z_[0-9]/) != nil) }
    }
}
