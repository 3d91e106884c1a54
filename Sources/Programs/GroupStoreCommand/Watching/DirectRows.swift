import AgentProtocol
import CommandSupport
import Glibc
import GroupStore
import LinuxSystem
import PersistentHistory
import RowShadow
import SQLiteFormat
import StoreWatching
import SystemPackage

/// The rows of a store that this process follows by itself, from the store's pages. It keeps a copy of them, and a log
/// of its own, in the user's state directory, so that its token outlives this process.
final class DirectRows {
    private let follower: RowFollower
    private var printer: StepPrinter
    /// The last step that was passed on.
    private var told: StepPosition { didSet { follower.shadow.firstUnread = told.step + 1 } }
    /// The reason why the token that was given can't be continued from; nil if it can.
    private(set) var discontinuity: StoreEvent.ResetReason?
    /// The events that wait until the store can be read.
    private var owed: [StoreEvent] = []
    /// True if the copy was made anew, and nobody was told: its steps don't lead on from what was told before.
    private var isRemade = false
    private let path: FilePath
    private let isQuiet: Bool
    /// True if something other than transactions in the log may have written the store.
    private var comparesAll = true
    private var backoff = DirectRows.makeBackoff()
    /// The time of the next attempt to read a store that couldn't be read.
    private(set) var retryAt: ContinuousClock.Instant?

    private static func makeBackoff() -> Backoff { Backoff(first: .milliseconds(1), longest: .milliseconds(250)) }

    /// The size in bytes above which a store isn't copied unasked.
    private static let copyLimit: Int64 = 1 << 30
    /// The number of times that a copy is made anew in one advance if each is damaged at once.
    private static let maximumRemakes = 3

    /// Opens or makes the copy of a store.
    ///
    /// - Parameters:
    ///   - path: The absolute path of the database, which need not exist.
    ///   - token: The position after which to begin.
    ///
    /// Throws `RowShadowError` and `SystemError`.
    init(_ path: FilePath, since token: String?, _ printer: StepPrinter, _ output: Output) throws {
        let position = token.flatMap(RowToken.init)
        let place = ShadowPlace(of: path, stateDirectory: try Self.stateDirectory())
        let slot = try place.takeSlot(epoch: position?.epoch)
        follower = try Self.follower(path, slot, output)
        self.printer = printer
        (self.path, isQuiet) = (path, output.quiet)
        if !isQuiet {
            Output.write(
                "groupstore: rows come from a copy of the store's pages (\(ByteCount(follower.shadow.size))) in "
                    + "\(PrintablePath(follower.shadow.path))", to: STDERR_FILENO)
        }
        told = StepPosition(step: follower.shadow.lastStep, fingerprint: nil)
        // The steps that lead here from the token stay in the log.
        follower.shadow.firstUnread = position.map { $0.position.step + 1 }
        // Steps that nobody asked for are in the log all the same: another token may be of before them.
        try awaitStore()
        // Whoever comes with a token learns of a damaged copy from it, and nobody else was told anything.
        (owed, isRemade) = ([], false)
        do { try begin(after: position, hasToken: token != nil) } catch RowShadowError.damaged {
            try follower.remake()
            try begin(after: position, hasToken: token != nil)
        }
    }

    /// Sets the position after which steps are passed on: the token's if the log continues from there.
    private func begin(after token: RowToken?, hasToken: Bool) throws {
        let shadow = follower.shadow
        var continuity = LogContinuity.foreign
        if let token, token.epoch == shadow.epoch { continuity = try shadow.continuity(after: token.position) }
        if let token, continuity == .continuous {
            told = token.position
        } else {
            told = try shadow.lastPosition()
            if hasToken { discontinuity = continuity.resetReason }
        }
    }

    deinit { try? follower.shadow.close() }

    /// Opens or makes the copy. Waits for a store that a program locks, and says so.
    private static func follower(
        _ path: FilePath, _ slot: ShadowPlace.Slot, _ output: Output
    ) throws -> RowFollower {
        var hasSaid = output.quiet
        while true {
            do {
                let follower = try RowFollower(path, slot, limit: copyLimit, within: .seconds(2))
                sayDamage(of: follower, output)
                return follower
            } catch let error {
                guard case RowShadowError.busy? = error as? RowShadowError else { throw error }
                if !hasSaid { Output.write("groupstore: \(error); waiting", to: STDERR_FILENO) }
                hasSaid = true
            }
            if Interruption.isRequested { throw AgentConnectionError.interrupted }
        }
    }

    /// Says that copies were damaged while they were made, and that one was made all the same.
    static func sayDamage(of follower: RowFollower, _ output: Output) {
        guard follower.damagedCopies > 0, !output.quiet else { return }
        let path = PrintablePath(follower.shadow.path)
        Output.write(
            "groupstore: a copy in \(path) was damaged while it was made, and was made anew; check the disk",
            to: STDERR_FILENO)
    }

    /// Brings the copy to the store's present state.
    private func advance(comparesAll: Bool) throws -> RowFollower.Outcome {
        var remakes = 0
        do {
            while true {
                do { return try follower.advance(comparesAll: comparesAll, inParts: true) } catch {
                    guard case RowShadowError.damaged? = error as? RowShadowError, remakes < Self.maximumRemakes else {
                        throw error
                    }
                    remakes += 1
                    try remake()
                }
            }
        } catch RowShadowError.busy { return .busy }
    }

    /// Makes a damaged copy anew: whoever follows the store reads it again.
    private func remake() throws {
        try follower.remake()
        told = try follower.shadow.lastPosition()
        isRemade = true
    }

    /// Returns true if the rows of stores are told from their pages: none of them keeps a history, which a user who has
    /// enabled it asks for. Entities and authors are only in a history.
    ///
    /// Throws `RowShadowError`, `SystemError` and `DirectFeedError`.
    static func areFromPages(_ paths: [FilePath], _ filter: RowFilterOptions) throws -> Bool {
        if filter.wire.needsHistory { return false }
        for path in paths {
            guard let place = StorePlace(path), FileStatus(following: place.path)?.kind != .directory else {
                throw DirectFeedError.notAStore(path)
            }
            let tables = try StoreTables.statements(ofStoreAt: place.path)
            if tables.map(HistorySchema.isKept) == true { return false }
        }
        return true
    }

    /// The user's state directory. Throws `CommandFailure` if the environment has none.
    static func stateDirectory() throws -> FilePath {
        let variables = ProcessVariables.all
        if let state = variables["XDG_STATE_HOME"].map({ FilePath($0) }), state.isAbsolute { return state }
        guard let home = variables["HOME"].map({ FilePath($0) }), home.isAbsolute else {
            throw CommandFailure(
                .configuration, code: "no_state_directory", "neither XDG_STATE_HOME nor HOME is set",
                remedy: "set XDG_STATE_HOME to a directory of this user's")
        }
        return home.appending(".local").appending("state")
    }

    /// Brings the copy to the store's present state, as soon as it can be read, for at most some seconds.
    private func awaitStore() throws {
        let deadline = Deadline(after: .seconds(5))
        while true {
            switch try advance(comparesAll: true) {
            case .current, .absent, .partly:
                if follower.hasMore { retryAt = .now }
                return comparesAll = false
            case .busy:
                if deadline.hasPassed { return retryAt = .now }
                pause(.milliseconds(5))
            }
        }
    }

    /// The last lines of the rows of the event that is passed on, which belong before the event's own line.
    private(set) var rest: [UInt8] = []

    /// The position up to which everything was passed on.
    var token: String { RowToken(epoch: follower.shadow.epoch, told).description }

    /// True if steps are logged that were not passed on.
    var hasSteps: Bool { isRemade || told.step < follower.shadow.lastStep }

    /// Call it after each file event: a program may have opened the store.
    func recordFileEvent() { follower.readJournalEvents() }

    /// Records an event, and passes on what it stands for, or leaves that to `retry`.
    ///
    /// - Parameter body: Called with each event, after its rows were printed, and with nil if only the token advances.
    func record(_ event: StoreEvent, _ body: (StoreEvent?) throws -> Void) throws {
        switch event {
        // The steps say it.
        case .change(let tables): if !tables.isComplete { comparesAll = true }
        case .reset(.overflow): comparesAll = true
        case .reset:
            comparesAll = true
            owed.append(event)
        case .branchChange, .relocating, .progress, .relocated, .migrated, .abandoned, .hazard, .hazardOver:
            owed.append(event)
        }
        try retry(body)
        if event == .reset(.unreadable), !owed.isEmpty, !isQuiet {
            Output.write(
                "groupstore: \(PrintablePath(path)): a program keeps it locked; its rows come when it lets go",
                to: STDERR_FILENO)
        }
    }

    /// Reads the store, and passes on what has happened since the last time.
    func retry(_ body: (StoreEvent?) throws -> Void) throws {
        retryAt = nil
        switch try advance(comparesAll: comparesAll) {
        case .busy:
            try passOnSteps(body)
            retryAt = .now.advanced(by: backoff.next())
        case .partly:
            backoff = Self.makeBackoff()
            comparesAll = false
            try passOnSteps(body)
            // A reset is of what comes after the steps.
            try passOnOwed(body) { !Self.isReset($0) }
            retryAt = .now
        case .current, .absent:
            backoff = Self.makeBackoff()
            comparesAll = false
            try passOnSteps(body)
            try passOnOwed(body)
        }
    }

    private func passOnOwed(_ body: (StoreEvent?) throws -> Void, where isDue: (StoreEvent) -> Bool = { _ in true })
        throws
    {
        let events = owed.filter(isDue)
        owed.removeAll(where: isDue)
        // The steps have said that the store can be read again.
        for event in events where event != .reset(.unreadable) { try body(event) }
    }

    private static func isReset(_ event: StoreEvent) -> Bool { if case .reset = event { true } else { false } }

    private func takeOwedReset() -> StoreEvent? {
        let place = owed.firstIndex { Self.isReset($0) && $0 != .reset(.unreadable) }
        return place.map { owed.remove(at: $0) }
    }

    /// Prints the rows of each step that was logged before the call and not passed on, and passes on an event for it;
    /// nil after steps that the filter leaves out, which only advance the token.
    func passOnSteps(_ body: (StoreEvent?) throws -> Void) throws {
        if isRemade {
            isRemade = false
            try body(takeOwedReset() ?? .reset(.epoch))
        }
        let last = follower.shadow.lastStep
        var hasLeftOut = false
        while told.step < last {
            let tables: Set<ExactName>?
            do {
                guard let reader = try follower.shadow.step(after: told.step) else { break }
                tables =
                    reader.step.kind == .gap
                    ? nil : try printer.print(reader, from: token, meanwhile: follower.keepUp)
                told = StepPosition(reader.step)
            } catch RowShadowError.damaged {
                // Lines of the step that are printed already count only with a change.
                try remake()
                retryAt = .now
                return
            }
            hasLeftOut = false
            guard let tables else {
                // One reset is enough, and one that waits says more, such as that the file was replaced.
                try body(takeOwedReset() ?? .reset(.historyGap))
                continue
            }
            if printer.admits(tables) {
                rest = printer.rest
                defer { rest = [] }
                try body(.change(ChangedTables(tables.map(\.text), isComplete: true)))
            } else {
                hasLeftOut = true
            }
            // The reader, or the disk with the token, may be slow.
            try follower.keepUp()
        }
        if hasLeftOut { try body(nil) }
        if follower.hasMore { retryAt = .now }
    }
}

/// A position among the steps of one shadow.
struct RowToken: CustomStringConvertible {
    let epoch: UInt64
    let position: StepPosition

    private static let start = "rows1-"

    init(epoch: UInt64, _ position: StepPosition) {
        self.epoch = epoch
        self.position = position
    }

    /// Parses a token. Returns nil for any other text.
    init?(_ text: String) {
        guard text.hasPrefix(Self.start) else { return nil }
        let parts = text.dropFirst(Self.start.count).split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2 || parts.count == 3, let epoch = UInt64(parts[0], radix: 16), let step = UInt64(parts[1])
        else { return nil }
        var fingerprint: UInt64?
        if parts.count == 3 {
            guard let number = UInt64(parts[2], radix: 16) else { return nil }
            fingerprint = number
        }
        self.init(epoch: epoch, StepPosition(step: step, fingerprint: fingerprint))
    }

    var description: String {
        let fingerprint = position.fingerprint.map { "-" + String($0, radix: 16) } ?? ""
        return Self.start + String(epoch, radix: 16) + "-" + String(position.step) + fingerprint
    }
}

extension LogContinuity {
    /// The reason of the reset that tells it; nil if there is none.
    var resetReason: StoreEvent.ResetReason? {
        switch self {
        case .continuous: nil
        case .trimmed: .historyTrimmed
        case .foreign: .epoch
        }
    }
}
