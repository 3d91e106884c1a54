import AgentProtocol
import FoundationEssentials
import SystemPackage

/// What a subscriber is told of a store.
public enum StoreChange: Sendable, Equatable {
    /// A process that has the store open, or presents it.
    public struct Holder: Hashable, Sendable {
        /// 0 when it isn't known.
        public let pid: Int32
        public let program: String
        /// In another PID namespace than the agent.
        public let isElsewhere: Bool
    }

    /// Something was committed, and is found by who reads the store now. `tables`: which ones; nil when that isn't
    /// said. `isComplete`: no other table changed. `rows`: which rows, all that the subscription wants; nil where it asked
    /// for none, there are many, or the store's history doesn't say all: `rowChanges` tells what is known of them.
    case changed(tables: [String]?, isComplete: Bool, rows: [RowChange]? = nil, token: String)
    /// A store at a legacy place is about to become this one; who is waited for. It lasts until `relocated`,
    /// `abandoned`, `reset` or `disconnected`; where it still lasts after one of the latter two, it comes again.
    case relocating(waitingFor: [Holder], token: String)
    case relocated(from: URL, to: URL, token: String)
    /// The store is of another version of its model now: read everything anew, if this program knows that version.
    /// `fromModel` is nil where it was of no known one.
    case migrated(fromModel: String?, toModel: String, token: String)
    /// The relocation that was announced is over, and moved nothing.
    case abandoned(outcome: String, message: String, token: String)
    /// What the subscriber knows is stale: read everything anew. `reason`: a word such as `lagged`, `epoch`, `replaced`.
    case reset(reason: String, token: String)
    /// There is no agent: nobody tells of changes until `connected` or the next `reset`. It is looked for again.
    case disconnected
    /// The agent that there is doesn't serve the store's group; `message` is its word. Nobody tells of changes until
    /// `connected` or the next `reset`: it is asked again when its configuration has changed.
    case notServed(message: String)
    /// What `disconnected` or `notServed` told of is over: what happened meanwhile comes next, as changes or as a `reset`.
    case connected(token: String)

    /// What `changes(since:)` takes to go on after this; nil when there is none.
    public var token: String? {
        switch self {
        case .changed(_, _, _, let token), .relocating(_, let token), .relocated(_, _, let token),
            .migrated(_, _, let token), .abandoned(_, _, let token), .reset(_, let token), .connected(let token):
            token
        case .disconnected, .notServed: nil
        }
    }
}

extension StoreChange {
    /// Nil for what a later agent may send and this library doesn't know; its token is kept all the same.
    init?(type: String, _ object: JSONObject) {
        guard let token = object.string("token") else { return nil }
        switch type {
        case "change":
            var tables: [String]?
            if case .array(let values)? = object["tables"] {
                tables = values.compactMap { if case .string(let name) = $0 { name } else { nil } }
            }
            var rows: [RowChange]?
            if case .array(let values)? = object["rows"] {
                rows = values.compactMap { if case .object(let row) = $0 { RowChange(row) } else { nil } }
            }
            self = .changed(tables: tables, isComplete: object.bool("complete") ?? false, rows: rows, token: token)
        case "relocating": self = .relocating(waitingFor: object.holders("waiting_for"), token: token)
        case "relocated":
            self = .relocated(from: object.url("from"), to: object.url("to"), token: token)
        case "migrated":
            self = .migrated(
                fromModel: object.string("from_model"), toModel: object.string("to_model") ?? "", token: token)
        case "abandoned":
            self = .abandoned(
                outcome: object.string("outcome") ?? "", message: object.string("message") ?? "", token: token)
        case "reset": self = .reset(reason: object.string("reason") ?? "", token: token)
        default: return nil
        }
    }
}

extension JSONObject {
    func url(_ key: String) -> URL {
        URL(filePath: String(decoding: path(key) ?? [], as: UTF8.self), directoryHint: .notDirectory)
    }

    func holders(_ key: String) -> [StoreChange.Holder] {
        guard case .array(let values)? = self[key] else { return [] }
        return values.compactMap { value in
            guard case .object(let holder) = value else { return nil }
            return StoreChange.Holder(
                pid: Int32(clamping: holder.integer("pid") ?? 0), program: holder.string("program") ?? "?",
                isElsewhere: holder.bool("elsewhere") ?? false)
        }
    }
}
