import AgentProtocol
import PersistentHistory
import SQLiteFormat

/// The result of reading a store's history.
enum HistoryReadResult: Sendable {
    /// All changes after the requested position.
    case page(RowPage)
    /// More changes than one read may return, and the history's present position.
    case tooMany(HistoryToken)
    /// Only the present position was requested.
    case position(HistoryToken)
    /// The changes after the position are unknown; the history's present position.
    case discontinued(StoreEvent.ResetReason, HistoryToken)
    /// The store keeps no history.
    case none
    /// The history can't be read now.
    case failed

    /// The history's position when it was read.
    var token: HistoryToken? {
        switch self {
        case .page(let page): page.token
        case .tooMany(let token), .position(let token), .discontinued(_, let token): token
        case .none, .failed: nil
        }
    }

    /// The same result for a subscriber that knows no earlier position.
    var withoutRows: HistoryReadResult {
        switch self {
        case .page(let page): .position(page.token)
        case .tooMany(let token), .discontinued(_, let token): .position(token)
        case .position, .none, .failed: self
        }
    }

    var isFailed: Bool { if case .failed = self { true } else { false } }

    /// The tables of the rows.
    var tables: Set<String> { if case .page(let page) = self { page.tables } else { [] } }
}

struct RowPage: Sendable {
    /// The rows in wire format, in order.
    let rows: [JSONObject]
    /// The tables whose changes may have gone unrecorded, each with its number in the history.
    let gaps: [(number: Int64, table: String)]
    let token: HistoryToken
    /// True if the schema was changed since the history's triggers were made.
    let isOutdated: Bool
    /// True if the store is a replica, which has a table of its follower's.
    let isReplica: Bool
    let tables: Set<String>
    /// True if the rows were read from the store's pages, which miss none and know no authors and entities.
    let isFromPages: Bool
    /// The tables that were made, dropped or altered, if the rows are from pages.
    let redefined: Set<ExactName>

    init(
        rows: [JSONObject] = [], gaps: [(Int64, String)] = [], token: HistoryToken, isOutdated: Bool = false,
        isReplica: Bool = false, redefined: Set<ExactName> = [], isFromPages: Bool = false
    ) {
        self.isFromPages = isFromPages
        self.redefined = redefined
        self.rows = rows
        self.gaps = gaps
        self.token = token
        self.isOutdated = isOutdated
        self.isReplica = isReplica
        tables = Set(rows.compactMap { $0.string("table").map(TableFilter.fold) })
    }
}

extension HistoryReadResult {
    /// Parses the output of `groupstore changes --json`.
    init(_ messages: [(type: String, object: JSONObject)]) {
        guard let summary = messages.last, summary.type == "summary" else {
            self = .failed
            return
        }
        if let error = summary.object.object("error") {
            self = error.string("code") == "no_history" ? .none : .failed
            return
        }
        guard let token = summary.object.string("token").flatMap({ HistoryToken($0) }) else {
            self = .failed
            return
        }
        if summary.object.string("outcome") == "reset" {
            let reason = messages.first?.object.string("reason").map(StoreEvent.ResetReason.init)
            self = .discontinued(reason ?? .epoch, token)
        } else if summary.object.bool("more") != false || messages.contains(where: { $0.object["truncated"] != nil }) {
            // A change with a row longer than a line is sent without rows, like one with too many rows.
            self = .tooMany(token)
        } else {
            self = .page(Self.page(messages.dropLast(), token, summary.object))
        }
    }

    private static func page(
        _ messages: some Sequence<(type: String, object: JSONObject)>, _ token: HistoryToken,
        _ summary: JSONObject
    ) -> RowPage {
        var rows: [JSONObject] = []
        var gaps: [(Int64, String)] = []
        for (type, object) in messages {
            var row = object
            row["type"] = nil
            if type == "row" { rows.append(row) }
            if type == "reset" { gaps.append((row.integer("number") ?? .max, row.string("table") ?? "")) }
        }
        return RowPage(
            rows: rows, gaps: gaps, token: token, isOutdated: summary.bool("outdated") ?? false,
            isReplica: summary.bool("replica") ?? false)
    }
}
