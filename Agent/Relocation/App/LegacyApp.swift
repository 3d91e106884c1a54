import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// A program's directory that a configuration has moved into a group, as the scheduler tracks it. Only one thread uses
/// it.
final class LegacyApp {
    typealias Instant = ContinuousClock.Instant

    enum State: Equatable {
        case absent
        /// It has just come, and may not be whole.
        case arriving
        /// A program uses it, or another relocation is under way.
        case waiting(String)
        case moving
        case moved
        /// A person has moved it back, and there it stays.
        case undone
        case failed(LegacyStore.Failure)

        fileprivate var isPending: Bool {
            switch self {
            case .arriving, .waiting, .moving: true
            case .absent, .moved, .undone, .failed: false
            }
        }
    }

    let group: GroupIdentifier
    let directory: FilePath
    let configuration: Configuration.App
    private(set) var state = State.absent {
        didSet { if state.isPending != oldValue.isPending { pendingSince = state.isPending ? .now : nil } }
    }
    /// The time since which it has been arriving or waiting; nil if it isn't.
    private(set) var pendingSince: Instant?
    /// The time of the next attempt; nil if only an event can change something.
    private(set) var dueAt: Instant?
    /// True while a worker moves it.
    private(set) var isUnderWay = false
    private var isInspectionDue = false
    /// Where the last move has its old directory, if it could not remove all of it.
    private var formerPlace: FilePath?
    /// What was at the old place at the last attempt. An attempt's own renames raise events there, too.
    private var attempted: FileIdentity?
    private var began = Instant.now
    private(set) var failedStops = FailedStops()
    /// No event reports that the last program has left a directory: it is looked at again, sooner at first.
    private var waitBackoff = Backoff(first: .milliseconds(100), longest: .seconds(10))
    private var retryBackoff = Backoff(first: .seconds(1), longest: .seconds(300))
    /// The pause after an attempt, as a multiple of its duration, and at most: it scans all processes.
    private static let pauseFactor = 20
    private static let longestPause = Duration.seconds(10)

    init(_ app: Configuration.App, of group: Configuration.Group) {
        (self.group, directory, configuration) = (group.identifier, group.directory, app)
    }

    var source: FilePath { configuration.source }
    var destination: FilePath { directory.appending(configuration.name) }

    // MARK: What is there

    private var entry: FileStatus? {
        guard let name = source.lastComponent, let parent = try? Directory(source.removingLastComponent()) else {
            return nil
        }
        return (try? parent.status(name)) ?? nil
    }

    /// True if a move of it, or its way back, was interrupted or is under way. A journal that can't be read counts as
    /// one.
    private var isUnfinished: Bool {
        guard let container = try? GroupContainer(directory) else { return false }
        do {
            guard let move = try container.appJournal()?.move else { return false }
            let places = [move.source.path, move.destination.path]
            return [source, destination].contains { places.contains(Self.resolved($0)) }
        } catch {
            return true
        }
    }

    private static func resolved(_ path: FilePath) -> FilePath {
        guard let name = path.lastComponent else { return path }
        return (try? Directory(resolving: path.removingLastComponent()))?.path.appending(name) ?? path
    }

    /// Looks at the old place after an event. Schedules an attempt if something else is there than at the last one.
    func inspect(at now: Instant = .now) {
        guard !isUnderWay else { return isInspectionDue = true }
        if isUnfinished {
            // A failed attempt is repeated in due time.
            if dueAt == nil || entry?.identity != attempted { schedule(at: now) }
            return
        }
        guard let entry else {
            (state, dueAt, attempted) = (.absent, nil, nil)
            return
        }
        guard entry.identity != attempted else { return }
        let isNew = entry.kind == .directory
        schedule(at: isNew ? now.advanced(by: configuration.settle - age(of: entry)) : now)
    }

    /// Records that something has left its new place: what was in the way, or the directory itself, by an undo that may
    /// have been killed.
    func destinationIsFree() {
        switch state {
        case .failed(let failure) where failure.code == "destination_taken": recheck()
        case .moved: recheck()
        case .absent, .arriving, .waiting, .moving, .undone, .failed: break
        }
    }

    /// Looks anew, whatever was there at the last attempt.
    func recheck() {
        attempted = nil
        inspect()
    }

    private func schedule(at instant: Instant) {
        switch state {
        // It is there, and a repeated attempt may end in the same way.
        case .moved, .undone, .failed, .waiting: break
        case .absent, .arriving, .moving: state = .arriving
        }
        waitBackoff.reset()
        retryBackoff.reset()
        dueAt = instant
    }

    /// The time since the last change of the directory, at most the time to settle.
    private func age(of entry: FileStatus) -> Duration {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        let age = Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec) - entry.changed
        return min(max(.nanoseconds(age), .zero), configuration.settle)
    }

    // MARK: An attempt

    func shouldTryNow(at now: Instant = .now) -> Bool { !isUnderWay && dueAt.map { $0 <= now } ?? false }

    /// Hands the directory to a worker.
    func begin(at now: Instant = .now) {
        (isUnderWay, dueAt, began, attempted) = (true, nil, now, entry?.identity)
        if case .arriving = state { state = .moving }
    }

    /// Takes the directory back from the worker, with the outcome.
    func end(_ outcome: LegacyApps.Outcome, at now: Instant = .now) {
        isUnderWay = false
        switch outcome.result {
        case .success(let summary):
            failedStops = FailedStops()
            let isMoved = summary.outcome == .moved || summary.outcome == .alreadyMoved
            state = isMoved ? .moved : .undone
            formerPlace = isMoved ? lastFormerPlace : nil
            let left = entry
            attempted = isMoved && left?.kind != .symbolicLink ? nil : left?.identity
            if attempted == nil, left != nil { isInspectionDue = true }
        case .failure(let failure) where failure.kind == .busy:
            if outcome.hasStopped { failedStops.insert(outcome.fingerprints) }
            // Why it isn't stopped again is said by the failure before.
            if !outcome.isStopWithheld || state == .moving { state = .waiting(failure.message) }
            let pause = min(began.duration(to: now) * Self.pauseFactor, Self.longestPause)
            dueAt = now.advanced(by: max(waitBackoff.next(), pause))
        case .failure(let failure):
            if outcome.hasStopped { failedStops.insert(outcome.fingerprints) }
            state = .failed(LegacyStore.Failure(failure))
            // Other files than those that are watched may decide it, such as those in the directory.
            dueAt = now.advanced(by: retryBackoff.next())
            if entry == nil, !isUnfinished { isInspectionDue = true }
        }
        if isInspectionDue {
            isInspectionDue = false
            inspect(at: now)
        }
    }

    /// The hidden name by which a copy's old directory is removed, by the receipt.
    private var lastFormerPlace: FilePath? {
        let receipts = try? GroupContainer(directory).appReceipts(of: Self.resolved(destination))
        let place = Self.resolved(source)
        guard let move = receipts?.last(where: { $0.move.source.path == place })?.move else { return nil }
        return move.source.path.removingLastComponent().appending(move.id.hiddenName())
    }

    // MARK: For others

    /// The request, for the thread that moves it.
    var request: AppMoveRequest {
        var request = AppMoveRequest(source: source, destination: destination)
        request.isConfigured = true
        request.recipe = configuration.recipe
        request.rewrites = configuration.rewrites
        if configuration.rewritesOwnPath { request.rewriteOwnPath() }
        request.deadline = configuration.deadline
        request.stopsHolders = configuration.stopsHolders
        request.assumeClosed = configuration.assumeClosed
        return request
    }

    var keys: Set<RelocationKey> {
        RelocationKey.of(source).union(RelocationKey.of(destination)).union([.recovery(directory)])
    }

    /// A sentence that says when its programs are stopped again; nil if nothing keeps that from being done.
    var stopRefusal: String? {
        guard !failedStops.isEmpty else { return nil }
        return "its programs are not stopped again until its files, its stores' tables or its entry change, or the "
            + "agent is started again"
    }

    private func withStopRefusal(_ detail: String) -> String { stopRefusal.map { "\(detail); \($0)" } ?? detail }

    /// The row of `status`.
    var status: AppStatus {
        let leftBehind = state == .moved ? formerPlace.flatMap { $0.isDirectory ? $0 : nil } : nil
        let (word, detail): (String, String?) =
            switch state {
            case .absent: ("absent", nil)
            case .arriving: ("arriving", nil)
            case .waiting(let reason): ("waiting", withStopRefusal(reason))
            case .moving: ("moving", nil)
            case .moved: ("moved", leftBehind.map { "files that could not be removed are in \(PrintablePath($0))" })
            case .undone:
                (
                    "undone",
                    "it was moved back and stays; to move it again: groupstore move-app \(source.shellWord) "
                        + destination.shellWord
                )
            case .failed(let failure): (failure.state, withStopRefusal(failure.detail))
            }
        var row = AppStatus(group: group, path: source, destination: destination, state: word, detail: detail)
        if case .failed(let failure) = state { (row.code, row.exitCode) = (failure.code, failure.exitCode) }
        if word == "arriving" || word == "waiting" { row.waitingSince = pendingSince }
        row.leftBehind = leftBehind
        return row
    }
}

extension FilePath {
    fileprivate var isDirectory: Bool { FileStatus(following: self)?.kind == .directory }
}
