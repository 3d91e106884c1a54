import AgentProtocol
import PersistentHistory

/// What a look into a store's history brought.
enum HistoryReadResult: Sendable {
    /// All that follows the position that was asked about.
    case page(RowPage)
    /// More followed than is read at once; the history is there now.
    case tooMany(HistoryToken)
    /// Nothing was asked but where the history is.
    case position(HistoryToken)
    /// What follows the position can't be told; the history is there now.
    case discontinued(StoreEvent.ResetReason, HistoryToken)
    /// The store keeps no history.
    case none
    /// It could not be read now.
    case failed

    /// Where the history was when it was read.
    var token: HistoryToken? {
        switch self {
        case .page(let page): page.token
        case .tooMany(let token), .position(let token), .discontinued(_, let token): token
        case .none, .failed: nil
        }
    }

    /// The same look, for somebody who knows nothing of what came before.
    var withoutRows: HistoryReadResult {
        switch self {
        case .page(let page): .position(page.token)
        case .tooMany(let token), .discontinued(_, let token): .position(token)
        case .position, .none, .failed: self
        }
    }

    /// The tables of the rows.
    var tables: Set<String> { if case .page(let page) = self { page.tables } else { [] } }
}

struct RowPage: Sendable {
    /// As they travel, in their order.
    let rows: [JSONObject]
    /// The tables whose changes may have gone unrecorded, each with the number in the history.
    let gaps: [(number: Int64, table: String)]
    let token: HistoryToken
    /// The schema was changed since the history's triggers were made.
    let isOutdated: Bool
    let tables: Set<String>

    init(rows: [JSONObject] = [], gaps: [(Int64, String)] = [], token: HistoryToken, isOutdated: Bool = false) {
        self.rows = rows
        self.gaps = gaps
        self.token = token
        self.isOutdated = isOutdated
        tables = Set(rows.compactMap { $0.string("table").map(TableFilter.fold) })
    }
}

extension HistoryReadResult {
    /// Reads what `groupstore changes --json` printed.
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
            let reason = messages.first?.object.string("reason").flatMap(StoreEvent.ResetReason.init)
            self = .discontinued(reason ?? .epoch, token)
        } else if summary.object.bool("more") != false || messages.contains(where: { $0.object["truncated"] != nil }) {
            // A row that is longer than a line may be is told without, as are those that are too many.
            self = .tooMany(token)
        } else {
            self = .page(Self.page(messages.dropLast(), token, isOutdated: summary.object.bool("outdated") ?? false))
        }
    }

    private static func page(
        _ messages: some Sequence<(type: String, object: JSONObject)>, _ token: HistoryToken, isOutdated: Bool
    ) -> RowPage {
        var rows: [JSONObject] = []
        var gaps: [(Int64, String)] = []
        for (type, object) in messages {
            var row = object
            row["type"] = nil
            if type == "row" { rows.append(row) }
            if type == "reset" { gaps.append((row.integer("number") ?? .max, row.string("table") ?? "")) }
        }
        return RowPage(rows: rows, gaps: gaps, token: token, isOutdated: isOutdated)
    }
}
