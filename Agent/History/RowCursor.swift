import AgentProtocol
import PersistentHistory

/// Where a subscription stands that the store's history is read for: what the feed said that it wasn't told of yet, and up
/// to where it knows the history. A pure value.
struct RowCursor {
    /// Changes of the feed, as one.
    struct Pending: Equatable {
        var tables: ChangedTables
        /// Tables that were written by a transaction which recorded no row.
        var unrecorded: Set<String>
        let first: UInt64
        var last: UInt64

        mutating func add(_ later: Pending) {
            tables = tables.union(later.tables)
            unrecorded.formUnion(later.unrecorded)
            last = later.last
        }
    }

    enum Outcome: Equatable {
        case change(ChangedTables, rows: [JSONObject]?)
        case reset(StoreEvent.ResetReason)
        /// There was something, and it isn't for the subscriber.
        case leftOut
        case nothing
    }

    private let tables: TableFilter?
    private let filter: HistoryOperation.Filter
    private let wantsRows: Bool
    /// What came since the last look into the history began.
    private(set) var pending: Pending?
    /// What came before it.
    private(set) var settling: Pending?
    private(set) var isSettling = false
    /// Up to where the history was told, or left out; nil where there is none.
    private(set) var position: HistoryToken?
    /// A migration was told since the position was one of the model of now.
    private var knowsMigration = false

    /// More rows than this don't travel with a change.
    static let mostRows = 64

    init(_ operation: SubscribeOperation) {
        tables = operation.tables
        filter = operation.filter
        wantsRows = operation.wantsRows
    }

    /// The number of the first change that it wasn't told of yet.
    var firstUntold: UInt64? { (settling ?? pending)?.first }

    /// Takes a place in the history as known.
    mutating func begin(at position: HistoryToken) { self.position = position }

    /// The feed tells of a change; `first`: of several, the first one's number.
    mutating func note(_ changed: ChangedTables, number: UInt64, first: UInt64? = nil) {
        let new = Pending(
            tables: changed, unrecorded: HistoryTables.unrecorded(by: changed), first: first ?? number, last: number)
        if pending == nil { pending = new } else { pending?.add(new) }
    }

    /// An event stands for all that came before.
    mutating func forgetUntold() {
        pending = nil
        settling = nil
    }

    /// The feed tells of a migration: the history needn't, with the next look into it.
    mutating func noteMigration() { knowsMigration = true }

    /// A look into the history begins.
    mutating func beginSettling() {
        isSettling = true
        guard let later = pending.take() else { return }
        if settling == nil { settling = later } else { settling?.add(later) }
    }

    /// Whether the changes that are being settled may have recorded rows.
    var mayHaveRows: Bool { settling.map { HistoryTables.mayHaveRecorded($0.tables) } ?? false }

    /// What the subscriber is to be told. `credited`: tables whose rows an earlier look brought already. `comesBack`: its
    /// position is a token of its own, of a time when its feed was another one.
    mutating func settle(_ reading: HistoryReadResult, credited: Set<String> = [], comesBack: Bool = false) -> Outcome {
        let change = settling.take()
        isSettling = false
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
            return .change((comesBack ? nil : change?.tables) ?? .unknown, rows: nil)
        case .discontinued(let reason, let token):
            position = token
            if reason == .migrated, known.migration { return Self.unattributed(change) }
            return .reset(reason)
        case .page(let page):
            guard let known = position?.number else {
                position = page.token
                return Self.unattributed(change)
            }
            if page.token.number > known { position = page.token }
            return settle(page, change, after: known, credited, comesBack)
        }
    }

    /// What isn't known to be about nothing that is wanted is told.
    private static func unattributed(_ change: Pending?) -> Outcome {
        change.map { .change($0.tables, rows: nil) } ?? .nothing
    }

    private func settle(
        _ page: RowPage, _ change: Pending?, after known: Int64, _ credited: Set<String>, _ comesBack: Bool
    ) -> Outcome {
        if page.gaps.contains(where: { $0.number > known && isWanted($0.table) }) { return .reset(.historyGap) }
        let new = page.rows.filter { ($0.integer("number") ?? .max) > known }
        let admitted = new.filter { isWanted($0.string("table") ?? "") && filter.admits($0) }
        let rowTables = ChangedTables(Set(new.compactMap { $0.string("table") }), isComplete: !comesBack)
        let told = change.map { $0.tables.union(rowTables) } ?? rowTables
        if let change, !isAttributed(change, to: page.tables.union(credited)) { return .change(told, rows: nil) }
        if comesBack, page.isOutdated { return .change(told.union(.unknown), rows: nil) }
        if !admitted.isEmpty {
            return .change(told, rows: wantsRows && admitted.count <= Self.mostRows ? admitted : nil)
        }
        guard let change else { return new.isEmpty ? .nothing : .leftOut }
        let others = HistoryTables.users(change.tables).map(TableFilter.fold)
        let wasTold = !others.isEmpty && credited.isSuperset(of: others)
        guard filter.isEmpty, tables?.admits(change.tables) ?? true, !wasTold else { return .leftOut }
        return .change(change.tables, rows: wantsRows ? [] : nil)
    }

    /// A row without a table's name may be of any.
    private func isWanted(_ table: String) -> Bool { table.isEmpty || tables?.admits(table) ?? true }

    /// Whether there is a row for each table that was written and is wanted. Rows of other tables may hide nothing.
    private func isAttributed(_ change: Pending, to known: Set<String>) -> Bool {
        guard change.tables.isComplete else { return false }
        let written = HistoryTables.recordable(change.tables).filter { !known.contains(TableFilter.fold($0)) }
        return change.unrecorded.union(written).allSatisfy { !isWanted($0) }
    }
}

/// A store's tables as a history sees them.
enum HistoryTables {
    private static let records: Set<String> = ["GS_CHANGE", "ACHANGE"]
    /// SQLite's and Core Data's bookkeeping, which goes with changes of other tables.
    private static let bookkeeping: Set<String> = [
        "sqlite_sequence", "sqlite_stat1", "sqlite_stat3", "sqlite_stat4", "ACHANGE", "ATRANSACTION",
        "ATRANSACTIONSTRING", "Z_PRIMARYKEY",
    ]

    /// Whether a transaction that wrote these may have recorded rows.
    static func mayHaveRecorded(_ tables: ChangedTables) -> Bool {
        !tables.isComplete || !records.isDisjoint(with: tables.names ?? [])
    }

    /// All but those that are kept for their own sake.
    static func users(_ tables: ChangedTables) -> Set<String> {
        Set((tables.names ?? []).filter { !bookkeeping.contains($0) && !HistorySchema.isOwn($0) })
    }

    /// The tables of a transaction that recorded no row at all.
    static func unrecorded(by tables: ChangedTables) -> Set<String> {
        mayHaveRecorded(tables) ? [] : users(tables)
    }

    /// The tables whose changes have rows of their own: Core Data records who is in a many-to-many relationship, not the
    /// join table's rows.
    static func recordable(_ tables: ChangedTables) -> Set<String> {
        let isCoreData = tables.names?.contains("ACHANGE") ?? false
        return users(tables).filter { !(isCoreData && $0.prefixMatch(of: /Z_[0-9]/) != nil) }
    }
}
