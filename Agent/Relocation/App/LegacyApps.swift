import AppRelocation
import DirectoryWatching
import LinuxSystem
import Logging
import StoreRelocation
import SystemPackage

/// All apps of the configuration; passes notices on to them.
struct LegacyApps {
    /// An attempt, for a worker's thread.
    struct Attempt: Sendable {
        let number: UInt64
        let request: AppMoveRequest
        let keys: Set<RelocationKey>
        var failedStops = FailedStops()
    }

    /// What an attempt has come to.
    struct Outcome: Sendable {
        let result: Result<AppMoveSummary, RelocationFailure>
        /// The directory before the attempt and after it, if its programs were stopped.
        var fingerprints: [AppFingerprint?] = []
        var hasStopped = false
        /// True if its programs weren't stopped because that was of no use before.
        var isStopWithheld = false
    }

    private(set) var all: [LegacyApp]
    private var underWay: [UInt64: LegacyApp] = [:]
    private var nextNumber: UInt64 = 1

    init(_ configuration: Configuration) { all = Self.apps(of: configuration) }

    private static func apps(of configuration: Configuration) -> [LegacyApp] {
        configuration.groups.flatMap { group in group.apps.map { LegacyApp($0, of: group) } }
    }

    /// Applies a new configuration. An app that is configured as before keeps its state.
    mutating func adopt(_ configuration: Configuration) {
        let known = all
        all = Self.apps(of: configuration).map { new in
            known.first {
                $0.group == new.group && $0.directory == new.directory && $0.configuration == new.configuration
            } ?? new
        }
        inspectAll()
    }

    func inspectAll() { for app in all { app.recheck() } }

    func record(_ notice: Notice) {
        switch notice {
        case .event(let event):
            for app in all where app.source.removingLastComponent() == event.directory {
                if app.source.lastComponent == event.name { app.inspect() }
            }
            // An attempt makes and removes a link there, too.
            guard !event.kinds.isDisjoint(with: .departed) else { return }
            for app in all where app.directory == event.directory && app.configuration.name == event.name {
                app.destinationIsFree()
            }
        case .directoryAppeared(let directory), .directoryVanished(let directory), .directoryChanged(let directory),
            .unwatchable(let directory, _):
            for app in all where app.source.removingLastComponent() == directory || app.directory == directory {
                app.recheck()
            }
        case .overflow: inspectAll()
        case .woken: break
        }
    }

    /// The directories whose events an app needs.
    var heardDirectories: Set<FilePath> {
        Set(all.flatMap { [$0.source.removingLastComponent(), $0.directory] })
    }

    var dueAt: ContinuousClock.Instant? { all.compactMap(\.dueAt).min() }

    /// Returns the attempts that are due, which begin with this.
    mutating func beginDue() -> [Attempt] {
        all.filter { $0.shouldTryNow() }.map { app in
            defer { nextNumber += 1 }
            app.begin()
            underWay[nextNumber] = app
            return Attempt(
                number: nextNumber, request: app.request, keys: app.keys, failedStops: app.failedStops)
        }
    }

    /// Records the outcome of an attempt, and logs it if it is new.
    mutating func end(_ number: UInt64, _ outcome: Outcome, _ logger: Logger) {
        guard let app = underWay.removeValue(forKey: number) else { return }
        let before = app.state
        app.end(outcome)
        let (from, to) = (PrintablePath(app.source), PrintablePath(app.destination))
        switch outcome.result {
        case .success(let summary):
            switch summary.outcome {
            case .moved:
                logger.notice("moved \(from) to \(to)", metadata: ["method": "\(summary.method?.rawValue ?? "none")"])
            case .alreadyMoved where before != .moved: logger.info("\(from) is at \(to) already")
            case .undone where before != .undone:
                logger.notice("\(from) was moved back, and stays there (groupstore status)")
            case .alreadyMoved, .undone, .nothingToUndo: break
            }
            for note in summary.notes { logger.notice("\(note)") }
        case .failure(let failure) where app.state != before:
            if failure.kind == .busy {
                logger.info(
                    "waiting to move \(from): \(failure.message)",
                    metadata: ["open-in": "\(failure.holders.list)"])
            } else {
                logger.error(
                    "\(from) is not moved to \(to): \(failure.messageWithRemedy)", metadata: ["code": "\(failure.code)"]
                )
            }
        case .failure: break
        }
        if outcome.hasStopped, let reason = app.stopRefusal { logger.notice("\(from): \(reason)") }
    }
}

extension LegacyApps.Attempt {
    /// Moves the directory. Stops no program for a directory for which that was of no use.
    func run(isCancelled: @escaping @Sendable () -> Bool, _ logger: Logger) -> LegacyApps.Outcome {
        var request = self.request
        let fingerprint = request.stopsHolders ? AppFingerprint(request.source) : nil
        let isStopWithheld = request.stopsHolders && !failedStops.allows(fingerprint)
        if isStopWithheld { request.stopsHolders = false }
        var hasStopped = false
        let engine = AppRelocation(
            request, isCancelled: isCancelled,
            report: { event in
                switch event {
                case .recovered(let text), .note(let text): logger.notice("\(text)")
                case .stopping(let programs):
                    hasStopped = true
                    logger.notice("stopping \(programs.list)")
                case .started(let programs): logger.notice("started \(programs.list)")
                case .waiting, .copied: break
                }
            })
        let result: Result<AppMoveSummary, RelocationFailure>
        do throws(RelocationFailure) { result = .success(try engine.run()) } catch { result = .failure(error) }
        let fingerprints = hasStopped ? [fingerprint, AppFingerprint(request.source)] : []
        return LegacyApps.Outcome(
            result: result, fingerprints: fingerprints, hasStopped: hasStopped, isStopWithheld: isStopWithheld)
    }
}
