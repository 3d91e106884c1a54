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
    private struct State {
        var follower: RowFollower
        /// The file whose rows the log has.
        var file: FileIdentity
        /// Where pages ended within their steps, the last one last.
        var continuations: [Continued] = []
    }

    private typealias Continued = (request: Request, continuation: StepRows.Continuation)

    /// What a continuation is of.
    private struct Request: Equatable {
        let step: UInt64
        let filter: HistoryOperation.Filter
        let values: Bool
    }

    /// The number of clients that may read large steps at the same time, each page in the time that it takes alone.
    private static let maximumContinuations = 4

    private let state: Mutex<State>
    private let path: FilePath
    /// Called with the reason when the copy is made anew because it is damaged.
    private let onDamage: @Sendable (any Error) -> Void

    /// Opens or makes the copy of a store. Throws `RowShadowError` and `SystemError`.
    init(_ path: FilePath, _ place: ShadowPlace, onDamage: @escaping @Sendable (any Error) -> Void) throws {
        let slot = try place.takeSlot(epoch: nil)
        let follower = try RowFollower(path, slot, limit: .max, within: Self.patience)
        self.path = path
        if follower.damagedCopies > 0 { onDamage(RowShadowError.damaged(follower.shadow.path)) }
        state = Mutex(State(follower: follower, file: follower.shadow.identity))
        self.onDamage = onDamage
    }

    /// The time for which a store is awaited that can't be read.
    private static let patience = Duration.seconds(2)

    /// Brings the copy to the store's present state. Returns false if the store can't be read for some seconds.
    ///
    /// - Parameter comparesAll: True if another file may have come to the store's name, or something other than
    ///   transactions in the log may have written it.
    func follow(comparesAll: Bool) throws -> Bool {
        let deadline = Deadline(after: Self.patience)
        func advance() throws -> RowFollower.Outcome {
            try repairing(knowsFile: !comparesAll) { follower, _ in try follower.advance(comparesAll: comparesAll) }
        }
        while try advance() == .busy {
            if deadline.hasPassed {
                state.withLock { $0.follower.startOver() }
                return false
            }
            pause(.milliseconds(2))
        }
        readJournalEvents()
        return true
    }

    /// Reads queued events, so that the log of a program is held that has opened the store just now. Its commits are
    /// told one by one, although it may close the store before the next `follow`. Returns at once if another thread
    /// uses the copy.
    func readJournalEvents() { _ = state.withLockIfAvailable { $0.follower.readJournalEvents() } }

    /// Uses the copy. A damaged one is made anew, and so is one of another file that has come to the store's name: who
    /// may read it needn't be allowed to read the former one. Whoever follows the rows gets a reset.
    ///
    /// - Parameter knowsFile: False to look which file has the name now: one with the same pages is no step.
    private func repairing<Result>(
        knowsFile: Bool = true, _ body: (RowFollower, inout [Continued]) throws -> Result
    ) throws -> Result {
        try state.withLock { state in
            func remake() throws {
                try state.follower.remake()
                state.file = state.follower.shadow.identity
                state.continuations = []
            }
            var result: Result
            do { result = try body(state.follower, &state.continuations) } catch let error {
                guard case RowShadowError.damaged? = error as? RowShadowError else { throw error }
                onDamage(error)
                try remake()
                result = try body(state.follower, &state.continuations)
            }
            let present = knowsFile ? nil : presentFile
            if state.follower.shadow.identity != state.file || present.map({ $0 != state.file }) == true {
                try remake()
                result = try body(state.follower, &state.continuations)
            }
            return result
        }
    }

    /// The file that has the store's name now; nil if there is none, or it can't be known.
    private var presentFile: FileIdentity? {
        guard let name = path.lastComponent,
            let status = try? Directory(path.removingLastComponent()).status(name), status.kind == .regular
        else { return nil }
        return status.identity
    }

    /// True if the copy's directory still has its path. If it was moved away, so was the store, and another one may be
    /// there.
    var isInPlace: Bool { state.withLock { $0.follower.shadow.isInPlace } }

    /// Syncs the copy, so that it counts after another start of the machine.
    func close() { state.withLock { try? $0.follower.shadow.close() } }

    /// Returns the changes after a position; for nil, only the present position.
    func changes(after position: HistoryToken?, limit: Int) throws -> HistoryReadResult {
        try repairing { follower, _ in
            let shadow = follower.shadow
            let present = try shadow.token()
            guard let position else { return .position(present) }
            if let reason = try shadow.discontinuity(at: position) { return .discontinued(reason, present) }
            var rows = StepRows(after: UInt64(position.number), limit: limit, values: nil, filter: nil)
            var last = UInt64(position.nonce)
            while let reader = try shadow.step(after: last) {
                guard try rows.read(reader) else { return .discontinued(.historyGap, present) }
                if rows.isFull { return .tooMany(present) }
                last = reader.step.number
            }
            return .page(
                RowPage(rows: rows.objects, token: present, redefined: rows.redefined, isFromPages: true))
        }
    }

    /// A page of rows: of one step, or the beginning of it.
    struct Page: Sendable {
        let lines: [JSONObject]
        let reply: JSONObject
    }

    /// Returns the page after a token, or at the start of the log.
    func page(
        since token: String?, limit: Int, _ filter: HistoryOperation.Filter, _ content: HistoryOperation.Content
    ) throws -> Page {
        let values = content != .changes
        return try repairing { follower, continuations in
            let shadow = follower.shadow
            let start = token.map { HistoryToken($0) } ?? shadow.token(step: 0, row: 0, fingerprint: nil)
            guard let start else { return .reset(.epoch, try shadow.token()) }
            if let reason = try shadow.discontinuity(at: start) { return .reset(reason, try shadow.token()) }
            let reader = try shadow.step(after: UInt64(start.nonce))
            let version: UInt32? = try values ? reader?.step.schemaVersion ?? shadow.schemaVersion() : nil
            if case .values(let known?) = content, let version, known != "\(version)" {
                return .otherSchema(try shadow.schemaVersion(), try shadow.token())
            }
            guard let reader else { return .end(start, schema: version) }
            var rows = StepRows(
                after: UInt64(start.number), limit: limit, values: values ? start.description : nil, filter: filter)
            let step = reader.step
            let last = step.firstRow + step.rowCount - 1
            let next = shadow.token(step: step.number, row: last, fingerprint: step.fingerprint)
            let request = Request(step: step.number, filter: filter, values: values)
            let place = continuations.firstIndex { $0 == request && $1.number == rows.lastNumber }
            guard try rows.read(reader, from: place.map { continuations.remove(at: $0).continuation }) else {
                return .reset(.historyGap, next)
            }
            if rows.isFull, let continuation = rows.continuation {
                continuations.removeFirst(max(0, continuations.count + 1 - Self.maximumContinuations))
                continuations.append((request, continuation))
            }
            let position =
                rows.isFull
                ? shadow.token(step: step.number - 1, row: rows.lastNumber, fingerprint: step.fingerprint) : next
            var reply: JSONObject = ["type": "summary", "outcome": "changes"]
            reply["changes"] = .integer(Int64(rows.count))
            reply["more"] = .bool(rows.isFull || step.number < shadow.lastStep)
            if let version { reply["schema"] = .string("\(version)") }
            reply["token"] = .string(position.description)
            return Page(lines: rows.objects, reply: reply)
        }
    }
}

extension PageRows.Page {
    static func reset(_ reason: StoreEvent.ResetReason, _ token: HistoryToken) -> PageRows.Page {
        reset([("reason", .string(reason.rawValue))], token)
    }

    /// The answer to who knows rows under another schema than the store has now.
    static func otherSchema(_ schema: UInt32, _ token: HistoryToken) -> PageRows.Page {
        let reason = StoreHistory.Discontinuity.schema.rawValue
        return reset([("reason", .string(reason)), ("schema", .string("\(schema)"))], token)
    }

    private static func reset(_ members: [(key: String, value: JSONValue)], _ token: HistoryToken) -> PageRows.Page {
        let position = [(key: "token", value: JSONValue.string(token.description))]
        return PageRows.Page(
            lines: [JSONObject(members: [("type", "reset")] + members + position)],
            reply: JSONObject(members: [("type", "summary"), ("outcome", "reset")] + members.dropFirst() + position))
    }

    static func end(_ token: HistoryToken, schema: UInt32?) -> PageRows.Page {
        var reply: JSONObject = ["type": "summary", "outcome": "changes", "changes": 0, "more": false]
        if let schema { reply["schema"] = .string("\(schema)") }
        reply["token"] = .string(token.description)
        return PageRows.Page(lines: [], reply: reply)
    }
}

extension RowShadow {
    /// The name of the copy in tokens, where a history has its own.
    fileprivate var name: String { HistoryToken.pagesPrefix + String(epoch, radix: 16) }

    /// The token of the present position.
    fileprivate func token() throws -> HistoryToken {
        token(step: lastStep, row: lastRow, fingerprint: try lastPosition().fingerprint)
    }

    /// The position in a step's rows, or after all of them.
    ///
    /// - Parameters:
    ///   - step: The last one that is told whole.
    ///   - fingerprint: That of the last step that is told whole or in part.
    fileprivate func token(step: UInt64, row: UInt64, fingerprint: UInt64?) -> HistoryToken {
        HistoryToken(history: name, number: Int64(row), nonce: Int64(step), step: fingerprint)
    }

    /// Returns why the log doesn't continue from a position; nil if it does.
    fileprivate func discontinuity(at position: HistoryToken) throws -> StoreEvent.ResetReason? {
        guard position.history == name, position.number >= 0, position.nonce >= 0 else { return .epoch }
        let (whole, row) = (UInt64(position.nonce), UInt64(position.number))
        guard whole <= lastStep, row <= lastRow else { return .epoch }
        guard let first = try firstStep(), whole + 1 >= first else { return .historyTrimmed }
        // The token may be of a part of the next step.
        let isPartial = try step(after: whole).map { $0.step.firstRow <= row } ?? false
        let known = StepPosition(step: isPartial ? whole + 1 : whole, fingerprint: position.step)
        return switch try continuity(after: known) {
        case .continuous: nil
        case .trimmed: .historyTrimmed
        case .foreign: .epoch
        }
    }
}
