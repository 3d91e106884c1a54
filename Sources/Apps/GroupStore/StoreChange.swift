import AgentProtocol
import FoundationEssentials
import SystemPackage

/// An event of a store, as delivered by ``StoreChanges``.
///
///     for try await change in store.changes() {
///         if change.changesContent { reload(change.tables) }
///         if let token = change.token { save(token) }
///     }
///
/// - Important: Later versions may add cases, and values to a case. ``token``, ``changesContent``, ``tables`` and
///   ``rows`` need no `switch`, and stay valid. A `switch` should have a `default`, and a pattern such as
///   `case .relocated` should leave out the values that it doesn't use.
public enum StoreChange: Sendable, Equatable {
    /// A process that has the store open, or presents it.
    public struct Holder: Hashable, Sendable {
        /// The process identifier; 0 if unknown.
        public let pid: Int32
        /// The program's name; `?` if unknown.
        public let program: String
        /// True if the process is in another PID namespace than the agent.
        public let isElsewhere: Bool

        package init(pid: Int32, program: String, isElsewhere: Bool) {
            self.pid = pid
            self.program = program
            self.isElsewhere = isElsewhere
        }
    }

    /// How far the relocation or migration of a store is.
    public struct Progress: Hashable, Sendable {
        /// What is being done.
        public enum Work: String, Sendable {
            /// A store at a legacy place is being copied.
            case relocating
            /// The store, or its copy, is being migrated to another model version.
            case migrating
        }

        /// What is being done.
        public let work: Work
        /// The part of the work that is done, from 0 to 1. A relocation that also migrates counts twice from 0.
        public let fraction: Double
        /// The present activity, in words for people.
        public let activity: String

        package init(_ work: Work, fraction: Double, activity: String) {
            self.work = work
            self.fraction = fraction
            self.activity = activity
        }
    }

    /// A state of a store in which commits can be lost or hidden, although no program does anything wrong by its own
    /// lights: another has removed or replaced files under it.
    public struct Hazard: Hashable, Sendable {
        /// The kind: `orphaned_log`, `orphaned_database`, `dropped_locks`, `two_names` or `mixed_modes`. Later versions
        /// may have others.
        public let code: String
        /// The process whose open file it is about.
        public let holder: Holder
        /// The file as the process names it; nil if this user may not know it.
        public let file: URL?
        /// What is the matter, in one sentence.
        public let message: String
        /// What to do, in one line.
        public let remedy: String

        package init(code: String, holder: Holder, file: URL?, message: String, remedy: String) {
            (self.code, self.holder, self.file) = (code, holder, file)
            (self.message, self.remedy) = (message, remedy)
        }
    }

    /// A transaction was committed, and is visible to a reader from now on.
    ///
    /// - `tables` names the changed tables; nil if they aren't known.
    /// - `isComplete` is true if no other table was changed.
    /// - `rows` lists all changed rows that the subscription selects. It is nil if the subscription didn't ask for
    ///   rows, if there are too many, or if the store's history doesn't know all;
    ///   ``SharedStore/rowChanges(since:includingValues:schema:limit:filter:)`` returns what is known of them.
    case changed(tables: [String]?, isComplete: Bool, rows: [RowChange]? = nil, token: String)
    /// A process has committed to files of the store that have lost their names: a history that nobody else sees. It
    /// comes while a `hazard` of that process lasts, and may come for a commit that `changed` has reported. The store's
    /// content is as before.
    case branchChanged(pid: Int32, tables: [String]?, isComplete: Bool, token: String)
    /// A store at a legacy place is about to become this one; `waitingFor` lists the processes that the relocation
    /// waits for. The state lasts until `relocated`, `abandoned`, `reset` or `disconnected`; if it lasts beyond one of
    /// the latter two, the event comes again.
    case relocating(waitingFor: [Holder], token: String)
    /// How far the announced relocation or migration is: at most ten times a second, to a sequence that asked for it.
    case progress(Progress, token: String)
    /// The store was relocated. `from` names no file if this user may not know the former location.
    ///
    /// A subscriber in a process that presents the store receives this when the store is open again there, or after 10
    /// seconds.
    case relocated(from: URL, to: URL, token: String)
    /// The store has another model version now. `fromModel` is nil if the former version is unknown.
    ///
    /// - Important: Everything read before is stale. Read it again, if this program knows the new version.
    case migrated(fromModel: String?, toModel: String, token: String)
    /// The announced relocation ended and moved nothing. `outcome` is a code; `message` is for people.
    case abandoned(outcome: String, message: String, token: String)
    /// Commits to the store can be lost or hidden from now on.
    ///
    /// - Important: What the process of the hazard commits may never reach this store.
    case hazard(Hazard, token: String)
    /// A hazard that `hazard` reported is over. Its message and remedy are empty.
    case hazardOver(Hazard, token: String)
    /// Everything the subscriber knows is stale and must be read again. `reason` is a code such as `subscribed`,
    /// `lagged`, `epoch` or `replaced`.
    case reset(reason: String, token: String)
    /// The agent is gone. No changes arrive until `connected` or the next `reset`. The library keeps trying to connect,
    /// and watches the store itself if no agent has come back after 10 seconds, unless only an agent can do what the
    /// subscription asks for.
    case disconnected
    /// The agent doesn't serve the store's group; `message` says why. No changes arrive until `connected` or the next
    /// `reset`. The library asks again when the agent's configuration changes.
    case notServed(message: String)
    /// The state `disconnected` or `notServed` is over. Whatever happened meanwhile comes next, as changes or as a
    /// `reset`.
    case connected(token: String)

    /// True if what was read from the store before may be stale: for `changed`, `relocated`, `migrated` and `reset`.
    public var changesContent: Bool {
        switch self {
        case .changed, .relocated, .migrated, .reset: true
        case .branchChanged, .relocating, .progress, .abandoned, .hazard, .hazardOver, .disconnected, .notServed,
            .connected:
            false
        }
    }

    /// The only tables that a `changed` event changed; nil if they aren't known, or for any other event.
    public var tables: [String]? {
        if case .changed(let tables, isComplete: true, _, _) = self { tables } else { nil }
    }

    /// All rows that a `changed` event changed, among those that the subscription selects; nil if they aren't known, or
    /// for any other event.
    public var rows: [RowChange]? {
        if case .changed(_, _, let rows, _) = self { rows } else { nil }
    }

    /// True if the store's presenters opened it anew before this change.
    var reopensStore: Bool {
        switch self {
        case .relocated, .migrated: true
        case .changed, .branchChanged, .relocating, .progress, .abandoned, .hazard, .hazardOver, .reset, .disconnected,
            .notServed, .connected:
            false
        }
    }

    /// The token with which
    /// ``SharedStore/changes(since:tables:namingTables:filter:includingRows:durably:reportingProgress:)`` continues
    /// after this event; nil for `disconnected` and `notServed`.
    public var token: String? {
        switch self {
        case .changed(_, _, _, let token), .branchChanged(_, _, _, let token), .relocating(_, let token),
            .progress(_, let token), .relocated(_, _, let token), .migrated(_, _, let token),
            .abandoned(_, _, let token), .hazard(_, let token), .hazardOver(_, let token), .reset(_, let token),
            .connected(let token):
            token
        case .disconnected, .notServed: nil
        }
    }
}

extension StoreChange {
    /// Returns the same change of the content with another token, unless that is nil.
    func with(token: String?) -> StoreChange {
        guard let token else { return self }
        return switch self {
        case .changed(let tables, let isComplete, let rows, _):
            .changed(tables: tables, isComplete: isComplete, rows: rows, token: token)
        case .relocated(let from, let to, _): .relocated(from: from, to: to, token: token)
        case .reset(let reason, _): .reset(reason: reason, token: token)
        case .branchChanged, .relocating, .progress, .migrated, .abandoned, .hazard, .hazardOver, .disconnected,
            .notServed, .connected:
            self
        }
    }

    /// Creates a change from an event, with the rows and the token of its line.
    init(_ event: StoreEvent, rows: [JSONObject]? = nil, token: String) {
        self =
            switch event {
            case .change(let tables):
                .changed(
                    tables: tables.names, isComplete: tables.isComplete,
                    rows: rows.map { $0.compactMap { RowChange($0) } }, token: token)
            case .branchChange(let tables, let pid):
                .branchChanged(pid: pid, tables: tables.names, isComplete: tables.isComplete, token: token)
            case .relocating(let holders): .relocating(waitingFor: holders.map(Holder.init), token: token)
            case .progress(let progress): .progress(Progress(progress), token: token)
            case .relocated(let from, let to): .relocated(from: URL(from), to: URL(to), token: token)
            case .migrated(let fromModel, let toModel):
                .migrated(fromModel: fromModel, toModel: toModel, token: token)
            case .abandoned(let outcome, let message): .abandoned(outcome: outcome, message: message, token: token)
            case .hazard(let hazard): .hazard(Hazard(hazard), token: token)
            case .hazardOver(let hazard): .hazardOver(Hazard(hazard), token: token)
            case .reset(let reason): .reset(reason: reason.rawValue, token: token)
            }
    }
}

extension URL {
    /// The file at a path, whose bytes may be none.
    init(_ path: [UInt8]) { self.init(filePath: String(decoding: path, as: UTF8.self), directoryHint: .notDirectory) }
}

extension StoreChange.Holder {
    init(_ holder: StoreEvent.Holder) {
        self.init(pid: holder.pid, program: holder.program, isElsewhere: holder.isElsewhere)
    }
}

extension StoreChange.Hazard {
    fileprivate init(_ hazard: HazardDescription) {
        self.init(
            code: hazard.code, holder: StoreChange.Holder(hazard.holder),
            file: hazard.path.isEmpty ? nil : URL(hazard.path), message: hazard.message, remedy: hazard.hint)
    }
}

extension StoreChange.Progress {
    fileprivate init(_ progress: StoreProgress) {
        let work: Work =
            switch progress.work {
            case .relocating: .relocating
            case .migrating: .migrating
            }
        self.init(work, fraction: progress.fraction, activity: progress.activity)
    }
}
