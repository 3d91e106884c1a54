import Glibc
import LinuxSystem
import SystemPackage

/// How long a directory in which a name is awaited goes unwatched, because others come and go in it all the time.
///
/// inotify(7) can't be asked for one name, or for directories alone. Where a name is awaited in a busy directory, such as
/// `/tmp`, each file that is made there would wake this process. So such a directory is looked at in pauses instead.
struct AwaitedNames {
    private struct PollingThrottle {
        var others = 0
        var since: ContinuousClock.Instant
        var pause = Duration.zero
        /// When the last pause is over.
        var until: ContinuousClock.Instant
    }

    private var paces: [FileIdentity: PollingThrottle] = [:]

    private static let mostOthers = 8
    private static let window = Duration.seconds(1)
    private static let firstPause = Duration.milliseconds(50)
    static let longestPause = Duration.seconds(1)

    /// Another name than those that are awaited came or went. Returns when to look again, if the directory is not to be
    /// watched until then.
    mutating func otherName(
        in directory: FileIdentity, at now: ContinuousClock.Instant
    ) -> ContinuousClock.Instant? {
        forgetQuiet(now)
        var pace = paces[directory] ?? PollingThrottle(since: now, until: now)
        defer { paces[directory] = pace }
        if now - pace.since > Self.window {
            pace.others = 0
            pace.since = now
        }
        pace.others += 1
        // After a pause the first one shows that it goes on.
        guard pace.pause > .zero || pace.others > Self.mostOthers else { return nil }
        pace.pause = pace.pause == .zero ? Self.firstPause : min(pace.pause * 2, Self.longestPause)
        pace.until = now.advanced(by: pace.pause)
        return pace.until
    }

    private mutating func forgetQuiet(_ now: ContinuousClock.Instant) {
        paces = paces.filter { _, pace in now < pace.since + Self.window || now < pace.until + Self.window }
    }
}

extension WatchedPaths {
    /// A name came or went in a directory where one is awaited, or in a wanted one.
    func namesChanged(_ event: InotifyTools.Event, _ name: FilePath.Component, _ watch: KernelWatch) -> [Notice] {
        let awaiting = watch.awaiting.filter { $0.value == name }.keys
        var concerned = Set(awaiting)
        let hasArrived = event.mask & UInt32(IN_CREATE | IN_MOVED_TO) != 0
        // Whether the last directory on a way is empty; where it is awaited, each change is looked at anyway.
        for path in watch.targets.keys {
            guard let entry = wanted[path] else { continue }
            if hasArrived ? entry.isEmpty : entry.lastingName == name { concerned.insert(path) }
        }
        for path in watch.awaiting.keys where !hasArrived && wanted[path]?.lastingName == name {
            concerned.insert(path)
        }
        if concerned.isEmpty, watch.targets.isEmpty { return otherName(event.watch, watch) }
        return placeEach(concerned)
    }

    private func otherName(_ number: CInt, _ watch: KernelWatch) -> [Notice] {
        guard watch.mask & Self.nameEvents != 0 else { return [] }
        guard !watch.awaiting.isEmpty else {
            // Nothing is awaited in it any more: a watch for less takes its place.
            end(number)
            return placeEach(watch.passing)
        }
        guard let due = awaitedNames.otherName(in: watch.identity, at: .now) else { return [] }
        end(number)
        for path in watch.awaiting.keys { revisits[path] = revisits[path].map { min($0, due) } ?? due }
        return placeEach(watch.passing.subtracting(watch.awaiting.keys))
    }
}
