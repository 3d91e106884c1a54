import AgentProtocol
import SQLiteFormat
import SystemPackage

/// The input of one run of an event's command: one event, or several that came before the command could run.
struct EventCommandInput: Sendable {
    private(set) var event: String
    /// The position up to which all is done once the run has succeeded.
    private(set) var token: String
    private var tables: Set<ExactName>
    private var isComplete: Bool
    /// The process that has committed to files which only it has, if all events are of that kind and of one process.
    private var branch: Int32?
    private let store: [UInt8]
    private let path: [UInt8]

    init(_ event: FeedEvent) {
        self.event = event.type
        token = event.token ?? event.store.token
        tables = Set((event.tables?.names ?? []).map { ExactName($0) })
        isComplete = event.tables?.isComplete ?? true
        branch = event.branch
        store = event.store.bytes
        path = event.store.path.bytes
    }

    /// Adds a later event. The event that requires the most work stands for both, so that a later event doesn't make
    /// the command trust stale data.
    mutating func add(_ later: EventCommandInput) {
        if Self.weight(later.event) >= Self.weight(event) { event = later.event }
        token = later.token
        tables.formUnion(later.tables)
        isComplete = isComplete && later.isComplete
        if branch != later.branch { branch = nil }
    }

    private static func weight(_ event: String) -> Int { ["change", "relocated", "reset"].firstIndex(of: event) ?? -1 }

    /// Returns the variables and their values. `done` is the position up to which earlier runs have succeeded.
    func variables(done: String) -> [(String, [UInt8])] {
        [
            ("GROUPSTORE_EVENT", Array(event.utf8)), ("GROUPSTORE_TOKEN", Array(token.utf8)),
            ("GROUPSTORE_SINCE", Array(done.utf8)),
            ("GROUPSTORE_TABLES", Array(tables.map(\.text).sorted().joined(separator: "\n").utf8)),
            ("GROUPSTORE_COMPLETE", Array((isComplete && event == "change" ? "1" : "0").utf8)),
            ("GROUPSTORE_BRANCH", Array((branch.map { String($0) } ?? "").utf8)),
            ("GROUPSTORE_STORE", store), ("GROUPSTORE_PATH", path),
        ]
    }
}
