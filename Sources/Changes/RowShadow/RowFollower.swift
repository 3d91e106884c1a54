import ChangeFeed
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// Follows a store by its pages: brings the shadow to the store's present state, step by step.
///
/// In WAL mode the frames of each transaction follow each other in the log, and a step is exactly one transaction.
/// After a restart of the log, what it had before counts if it is still there to its end, as the wal-index counts
/// commits. Wherever that isn't proven, and in rollback mode, all pages are compared with the shadow's: the difference
/// is one step, the net of whatever was committed.
///
/// Confined to one thread. It takes no lock on the store and writes nothing to it.
package final class RowFollower {
    package enum Outcome: Sendable {
        /// The shadow has the store's present state.
        case current
        /// In parts only: the shadow has some of the steps that lead there. Go on at once: the others are in memory.
        case partly
        /// The store can't be read now. Try again soon.
        case busy
        /// There is no store.
        case absent
    }

    package internal(set) var shadow: RowShadow
    /// True if the shadow was made just now: there was none, or none that counts.
    package private(set) var isNew: Bool
    /// The number of copies that were damaged while they were made, and made anew at once.
    package internal(set) var damagedCopies = 0
    let limit: Int64
    let patience: Duration
    let path: FilePath
    let directory: FilePath
    let name: StoreName
    var files: StoreFiles?
    /// The journals of transactions in rollback mode, or the logs; nil if they aren't watched.
    var journals: JournalWatch? { didSet { lead = nil } }
    /// Where the logs that are held lead on from; nil if a comparison must find what comes before them.
    var lead: Lead?
    private let hasExactTimes: Bool
    /// The commit up to which transactions were captured, in the log that is open; nil if a comparison must find what
    /// comes after them.
    var commit: WriteAheadIndex?
    /// The transactions after the shadow's state that were read from the log, with the identity of their store. A log
    /// that is written without a pause is restarted before they could be applied, and its frames are gone then.
    var captured = CapturedTransactions()
    /// True if the log has more that couldn't be captured.
    var isBehind = false
    /// The time from which on the names of the files are looked at again before the log is read.
    private var namesDueAt = ContinuousClock.now
    /// True if all pages are to be compared.
    private var isComparisonDue = false
    /// The database's stamp while no program had it open, there was no log, and the shadow had its content; nil if it
    /// isn't known.
    var idleStamp: StoreFiles.Stamp?
    /// True if the logs that are held lead on from the store as it was looked at last.
    private var isLed = false
    /// True while logs are read that are held, and that lead on from what was captured.
    var isReadingHeldLogs = false
    /// The map of the shadow's pages; nil until the next step if they contradict each other or weren't read yet.
    var map: TreeMap?
    /// True if the shadow is of no use until it is made anew.
    private var isDamaged = false
    private let definitions = TableDefinitions()
    /// An event tells of a change of the names. If it doesn't, this limits how long it goes unnoticed.
    private static let nameInterval = Duration.milliseconds(100)
    /// The number of transactions that are applied before anybody is told of them.
    private static let maximumSteps = 500

    /// Opens a store's shadow, or makes one, which is `isNew` and has the store's present state.
    ///
    /// - Parameters:
    ///   - path: The absolute path of the database, which need not exist.
    ///   - slot: The shadow's directory.
    ///   - limit: The size in bytes above which a store is cloned but not copied. Throws `RowShadowError.tooLarge`
    ///     where the file system can't clone it.
    ///   - patience: The time for which a store is awaited that can't be read. Throws `RowShadowError.busy` afterwards.
    ///   - readsMap: False if nothing but a new copy is wanted. Its pages aren't read again then; the first step does.
    ///   - whenFilled: Called when a new copy has its pages, before they are read again.
    ///
    /// Throws `RowShadowError` and `SystemError`.
    package init(
        _ path: FilePath, _ slot: ShadowPlace.Slot, limit: Int64, within patience: Duration, readsMap: Bool = true,
        whenFilled: () throws -> Void = {}
    ) throws {
        guard let file = path.lastComponent, let name = StoreName(file) else { throw RowShadowError.absent(path) }
        self.path = path
        self.name = name
        (self.limit, self.patience) = (limit, patience)
        directory = path.removingLastComponent()
        hasExactTimes = FileTimes.areExact(in: directory)
        if let (known, map) = try RowShadow.known(slot) {
            (shadow, isNew, self.map) = (known, false, map)
            try slot.directory.record(store: path)
        } else {
            (shadow, isNew) = (try RowShadow(slot, of: path), true)
            try make(readsMap: readsMap, whenFilled)
        }
    }

    /// Makes the shadow anew, with the store's present state, after it was found to be damaged or is of another file.
    /// It has another epoch, and no step. Throws as the initializer.
    package func remake() throws {
        isDamaged = true
        losePosition()
        (shadow, isNew) = (try RowShadow(shadow.slot, of: path), true)
        try make()
        isDamaged = false
    }

    // MARK: - Steps

    /// Brings the shadow to the store's present state.
    ///
    /// - Parameters:
    ///   - comparesAll: True if something other than transactions in the log may have written the store.
    ///   - inParts: True to return after some hundred transactions, so that they are told before the others are read.
    ///     What a writer commits meanwhile is captured.
    ///
    /// Throws `RowShadowError` and `SystemError`. The shadow is as it was then, or has some of the steps. After
    /// `RowShadowError.damaged` nothing but `remake` is of use.
    package func advance(comparesAll: Bool, inParts: Bool = false) throws -> Outcome {
        guard !isDamaged else { throw RowShadowError.damaged(shadow.path) }
        do {
            let outcome = try advanceSteps(comparesAll: comparesAll, inParts: inParts)
            try shadow.flush()
            return outcome
        } catch {
            return try outcome(after: error)
        }
    }

    private func advanceSteps(comparesAll: Bool, inParts: Bool) throws -> Outcome {
        let mayHaveOtherNames = comparesAll || isComparisonDue || isBehind || ContinuousClock.now >= namesDueAt
        if inParts, !mayHaveOtherNames, let files, try captureNext(files) {
            try applyCaptured(upTo: Self.maximumSteps)
            return hasMore ? .partly : .current
        }
        namesDueAt = .now.advanced(by: Self.nameInterval)
        guard let found = try StoreFiles.current(directory, name, unless: files) else {
            (files, journals, commit, isBehind, isComparisonDue) = (nil, nil, nil, false, false)
            try applyCaptured()
            return .absent
        }
        if found !== files { (files, journals, commit, idleStamp) = (found, nil, nil, nil) }
        // Other programs may want to prove that nobody has it open.
        defer { found.closeDatabase() }
        isBehind = false
        isComparisonDue = isComparisonDue || comparesAll
        if !captured.isFull, try !readLog(found) { isComparisonDue = true }
        // A comparison waits until what was captured is told: a writer's transactions stay apart.
        if !isComparisonDue || inParts && captured.count > Self.maximumSteps / 4 {
            try applyCaptured(upTo: inParts ? Self.maximumSteps : nil)
            return inParts && hasMore ? .partly : .current
        }
        if commit == nil || !inParts { try applyCaptured() }
        switch try readJournals(found) {
        case .all:
            record(nil)
            if journals?.takeClosed() != true {
                isComparisonDue = false
                return .current
            }
        case .disturbed: return .busy
        case .unknown: break
        }
        guard try compare(found) else { return .busy }
        isComparisonDue = false
        if !inParts { try applyCaptured() }
        return inParts && hasMore ? .partly : .current
    }

    /// Ends an advance that failed. Steps that can't be written didn't happen: a comparison tells what they did.
    private func outcome(after error: any Error) throws -> Outcome {
        do { try shadow.flush() } catch {
            losePosition()
            try? shadow.abandonSteps()
        }
        switch error {
        case RowShadowError.damaged(let path):
            isDamaged = true
            throw RowShadowError.damaged(path)
        case RowShadowError.noSpace(let path, let reserve):
            losePosition()
            try shadow.abandonSteps()
            throw RowShadowError.noSpace(path, reserve: reserve)
        case is Disturbed: return .busy
        case let error as SystemError where error.isPassing: return .busy
        default: throw error
        }
    }

    /// Forgets where the shadow is, and what its pages are.
    func losePosition() {
        (commit, idleStamp, map, lead) = (nil, nil, nil, nil)
        captured.removeAll()
    }

    /// Applies what was captured. Meanwhile, a writer may go on: what it commits is captured in time.
    ///
    /// - Parameter limit: The number of transactions; nil for all that are captured now.
    private func applyCaptured(upTo limit: Int? = nil) throws {
        var count = 0
        while count < limit ?? .max, let (transaction, identity) = captured.popFirst() {
            count += 1
            do {
                try apply(transaction, identity)
            } catch {
                losePosition()
                throw error
            }
            if limit != nil { try keepUp() }
        }
    }

    /// True if `advance` has something to do at once.
    package var hasMore: Bool { isBehind || isComparisonDue || !captured.isEmpty }

    /// Forgets where the shadow is in the log, so that the next step is found by a comparison with files opened anew.
    /// Call it when the store couldn't be read for long: nothing that is held open may be the reason.
    package func startOver() {
        (files, journals, commit, idleStamp) = (nil, nil, nil, nil)
        captured.removeAll()
    }

    /// Records where the shadow is in the log, or before it. What was captured since leads on from there.
    func record(_ view: StoreView?) {
        idleStamp = view?.idleStamp
        if captured.isEmpty { commit = view?.index }
        lead = view != nil && isLed ? Lead(commit, files) : nil
    }

    private func apply(_ transaction: WALTransaction, _ identity: FileIdentity) throws {
        let pages = transaction.pages()
        let staged = shadow.stage(pageSize: shadow.pages.pageSize, pageCount: transaction.pageCount)
        for number in pages.changed { try staged.add(number, pages.content(of: number)) }
        try staged.finish()
        try step(to: staged, pageSize: shadow.pages.pageSize, .exact, identity)
    }

    /// Compares all pages with the shadow's. Returns false if the store can't be read now.
    private func compare(_ files: StoreFiles) throws -> Bool {
        watchJournals(files)
        for attempt in 0..<20 {
            if attempt > 0 { pause(.microseconds(200 << min(attempt, 5))) }
            do {
                guard let (staged, view) = try stage(files) else { continue }
                if !staged.isEmpty || staged.pageCount != shadow.pages.pageCount {
                    // What was captured meanwhile doesn't lead on from a state without this step.
                    do { try step(to: staged, pageSize: staged.pageSize, .net, files.identity) } catch {
                        losePosition()
                        throw error
                    }
                }
                record(view)
                return true
            } catch is Disturbed {}
        }
        return false
    }

    /// Stages the pages that differ from the shadow's, and returns what was looked at; nil for that if the pages have
    /// transactions that were made meanwhile. Returns nil if they aren't of one state.
    func stage(_ files: StoreFiles) throws -> (StagedPages, StoreView?)? {
        _ = try readHeldLogs(files)
        guard let view = try look(files) else { return nil }
        try applyCaptured(until: view.index, files)
        // Its pages are compared piece by piece.
        try shadow.flush()
        let staged = shadow.stage(pageSize: view.pageSize, pageCount: view.pageCount)
        let found: StagedPages? = try capturing(since: view) {
            try view.forEachDifference(from: shadow.pages, { try staged.add($0, $1) }, meanwhile: keepUp)
            try staged.finish()
            return try view.isConfirmed() ? staged : nil
        }
        if let found { return (found, view) }
        return try stageAgain(staged, files).map { ($0, nil) }
    }

    /// Looks at the store as it is from now on. Returns nil if it can't be read now.
    func look(_ files: StoreFiles) throws -> StoreView? {
        if lead == nil {
            journals?.begin()
            _ = try files.refreshIndex(finalRead: {}, changed: { _ in commit = nil })
        }
        let view = try StoreView(files, path: path, hasExactTimes: hasExactTimes)
        let held = journals?.logs
        isLed = held?.finished.isEmpty == true && held?.current?.index.identity == files.walIndex?.identity
        return lead == nil || isLed ? view : nil
    }

    /// Reads a view. A log that is written without a pause is restarted meanwhile: what it gets from now on is
    /// captured. If that wasn't done before, it leads on from nothing if `body` returns nil.
    func capturing<Result>(since view: StoreView, _ body: () throws -> Result?) throws -> Result? {
        let isUnproven = commit == nil
        if isUnproven { commit = view.index }
        var result: Result?
        defer {
            if isUnproven, result == nil {
                commit = nil
                captured.removeAll()
            }
        }
        result = try body()
        return result
    }

    /// Applies the transactions up to a commit that is to be compared, so that each of them stays a step of its own.
    /// If they aren't known, the comparison tells what they did.
    private func applyCaptured(until end: WriteAheadIndex?, _ files: StoreFiles) throws {
        guard let end, try capture(files), let last = commit else {
            try applyCaptured()
            return commit = nil
        }
        let later = Int(last.commitCount &- end.commitCount)
        guard later >= 0, later <= captured.count else {
            try applyCaptured()
            return commit = nil
        }
        try applyCaptured(upTo: captured.count - later)
    }

    /// Watches the journals of a store in rollback mode, or the logs, from before a comparison on.
    func watchJournals(_ files: StoreFiles) {
        let isInWALMode = files.walIndex != nil || (try? files.header()?.journalMode) != .rollback
        if journals?.holdsLogs != isInWALMode {
            journals = try? JournalWatch(directory, name, isInWALMode ? .logs(of: files.identity) : .journals)
        }
    }

    /// Advances the shadow, and logs what the tables show.
    func step(
        to staged: StagedPages, pageSize: Int, _ kind: LoggedStep.Kind, _ identity: FileIdentity
    ) throws {
        // An error leaves it as invalid.
        var current = map.take()
        var difference: PageDifference?
        for attempt in 0..<2 where difference == nil {
            if attempt > 0 || current == nil { current = try shadow.map() }
            do {
                difference = try current?.advance(
                    from: shadow.pages, to: staged, changed: staged.numbers, key: definitions.key(of:),
                    keepsValues: definitions.keepsValues(from:to:))
            } catch { guard error is Contradiction else { throw error } }
        }
        let encoding = current?.format?.encoding ?? .utf8
        guard let difference else {
            try shadow.advance(to: staged, pageSize: pageSize, .gap, nil, encoding, identity: identity)
            return map = try shadow.map()
        }
        let isTold = kind == .exact || difference.tables.contains { LoggedTable($0) != nil }
        do {
            try shadow.advance(
                to: staged, pageSize: pageSize, isTold ? kind : nil, difference, encoding, identity: identity)
            map = current
        } catch is Contradiction {
            // A row's overflow pages: nothing but a gap leads past them.
            try shadow.advance(to: staged, pageSize: pageSize, .gap, nil, encoding, identity: identity)
            map = try shadow.map()
        }
    }
}
