import AgentProtocol
import LinuxSystem
import PersistentHistory
import RowShadow
import SQLiteFormat
import SQLiteStore
import Synchronization
import SystemPackage

/// The rows of a store that keeps no history, from a copy of its pages. Its tokens are those of a history.
final class PageRows: Sendable {
    private let follower: Mutex<RowFollower>
    /// The file whose rows the log has.
    private let file: FileIdentity

    /// Opens or makes the copy of a store. A copy that is damaged is made anew.
    ///
    /// Throws `RowShadowError` and `SystemError`.
    init(_ path: FilePath, _ place: ShadowPlace) throws {
        var opened: RowFollower
        do {
            opened = try RowFollower(path, try place.takeSlot(epoch: nil), limit: .max)
        } catch RowShadowError.damaged {
            _ = try place.removeAll()
            opened = try RowFollower(path, try place.takeSlot(epoch: nil), limit: .max)
        }
        file = opened.shadow.identity
        follower = Mutex(opened)
    }

    /// Brings the copy to the store's present state. Returns false if the store can't be read for some seconds.
    func follow(comparesAll: Bool) throws -> Bool {
        let deadline = Deadline(after: .seconds(2))
        while try follower.withLock({ try $0.advance(comparesAll: comparesAll) }) == .busy {
            if deadline.hasPassed { return false }
            pause(.milliseconds(2))
        }
        return true
    }

    /// True if another file has come to the store's name. Who may read it needn't be allowed to read the former one.
    var isOfFormerFile: Bool { follower.withLock { $0.shadow.identity != file } }

    /// Syncs the copy, so that it counts after another start of the machine.
    func close() { follower.withLock { try? $0.shadow.close() } }

    /// Returns the changes after a position; for nil, only the present position.
    func changes(after position: HistoryToken?, limit: Int) throws -> HistoryReadResult {
        try follower.withLock { follower in
            let shadow = follower.shadow
            let present = shadow.token
            guard let position else { return .position(present) }
            if let reason = try shadow.discontinuity(at: position) { return .discontinued(reason, present) }
            var rows = StepRows(after: UInt64(position.number), limit: limit, values: nil, filter: nil)
            var last = UInt64(position.nonce)
            while let reader = try shadow.step(after: last) {
                guard try rows.read(reader) else { return .discontinued(.historyGap, present) }
                if rows.isFull { return .tooMany(present) }
                last = reader.step.number
            }
            return .page(RowPage(rows: rows.objects, token: present, isFromPages: true))
        }
    }

    /// A page of rows: of one step, or the beginning of it.
    struct Page: Sendable {
        let lines: [JSONObject]
        let reply: JSONObject
    }

    /// Returns the page after a token, or at the start of the log.
    func page(since token: String?, limit: Int, _ filter: HistoryOperation.Filter, values: Bool) throws -> Page {
        try follower.withLock { follower in
            let shadow = follower.shadow
            let start = token.map { HistoryToken($0) } ?? HistoryToken(history: shadow.name, number: 0, nonce: 0)
            guard let start else { return .reset(.epoch, shadow.token) }
            if let reason = try shadow.discontinuity(at: start) { return .reset(reason, shadow.token) }
            guard let reader = try shadow.step(after: UInt64(start.nonce)) else { return .end(start) }
            var rows = StepRows(
                after: UInt64(start.number), limit: limit, values: values ? start.description : nil, filter: filter)
            let step = reader.step
            let last = step.firstRow + step.rowCount - 1
            let next = shadow.token(step: step.number, row: last)
            guard try rows.read(reader) else { return .reset(.historyGap, next) }
            let position = rows.isFull ? shadow.token(step: step.number - 1, row: rows.lastNumber) : next
            var reply: JSONObject = ["type": "summary", "outcome": "changes"]
            reply["changes"] = .integer(Int64(rows.count))
            reply["more"] = .bool(rows.isFull || step.number < shadow.lastStep)
            if values { reply["schema"] = .string("\(step.schemaVersion)") }
            reply["token"] = .string(position.description)
            return Page(lines: rows.objects, reply: reply)
        }
    }
}

extension PageRows.Page {
    static func reset(_ reason: StoreEvent.ResetReason, _ token: HistoryToken) -> PageRows.Page {
        let position = JSONValue.string(token.description)
        return PageRows.Page(
            lines: [["type": "reset", "reason": .string(reason.rawValue), "token": position]],
            reply: ["type": "summary", "outcome": "reset", "token": position])
    }

    static func end(_ token: HistoryToken) -> PageRows.Page {
        PageRows.Page(
            lines: [],
            reply: [
                "type": "summary", "outcome": "changes", "changes": 0, "more": false,
                "token": .string(token.description),
            ])
    }
}

extension RowShadow {
    /// The name of the copy in tokens, where a history has its own.
    fileprivate var name: String { "pages-" + String(epoch, radix: 16) }

    fileprivate var token: HistoryToken { token(step: lastStep, row: lastRow) }

    /// The position in a step's rows, or after all of them: `step` is the last one that is told whole.
    fileprivate func token(step: UInt64, row: UInt64) -> HistoryToken {
        HistoryToken(history: name, number: Int64(row), nonce: Int64(step))
    }

    /// Returns why the log doesn't continue from a position; nil if it does.
    fileprivate func discontinuity(at position: HistoryToken) throws -> StoreEvent.ResetReason? {
        guard position.history == name, position.number >= 0, position.nonce >= 0, position.nonce <= lastStep else {
            return .epoch
        }
        return try hasSteps(after: UInt64(position.nonce)) ? nil : .historyTrimmed
    }
}
