import Glibc
import LinuxSystem
import SystemPackage

/// Decides how long a directory with an awaited name goes unwatched because other names in it change all the time.
///
/// inotify(7) can't filter by name, or for directories alone. If a name is awaited in a busy directory such as `/tmp`,
/// each file created there would wake this process. Such a directory is polled instead.
struct AwaitedNames {
    private struct DirectoryActivity {
        var others = 0
        var since: ContinuousClock.Instant
        var pause = Duration.zero
        /// The end of the last pause.
        var until: ContinuousClock.Instant
    }

    private var activities: [FileIdentity: DirectoryActivity] = [:]

    private static let maxOthers = 8
    private static let window = Duration.seconds(1)
    private static let firstPause = Duration.milliseconds(50)
    static let longestPause = Duration.seconds(1)

    /// Records that a name other than the awaited ones came or went. Returns the time of the next poll if the directory
    /// is to go unwatched until then.
    mutating func recordOther(
        in directory: FileIdentity, at now: ContinuousClock.Instant
    ) -> ContinuousClock.Instant? {
        removeQuiet(now)
        var activity = activities[directory] ?? DirectoryActivity(since: now, until: now)
        defer { activities[directory] = activity }
        if now - activity.since > Self.window {
            activity.others = 0
            activity.since = now
        }
        activity.others += 1
        // After a pause, a single event shows that the activity continues.
        guard activity.pause > .zero || activity.others > Self.maxOthers else { return nil }
        activity.pause = activity.pause == .zero ? Self.firstPause : min(activity.pause * 2, Self.longestPause)
        activity.until = now.advanced(by: activity.pause)
        return activity.until
    }

    private mutating func removeQuiet(_ now: ContinuousClock.Instant) {
        activities = activities.filter { _, activity in
            now < activity.since + Self.window || now < activity.until + Self.window
        }
    }
}

extension WatchedPaths {
    /// A name in a directory that isn't watched for it.
    struct PolledName: Hashable {
        let directory: FileIdentity
        let name: FilePath.Component
    }

    /// Looks whether a polled name has come, and watches its directory for it again.
    func poll(_ polled: PolledName, for paths: [FilePath]) -> [Notice] { updateTogether(paths, awaiting: polled) }

    /// Updates paths that wait for one name in one directory. If the first finds no change, there is none for the
    /// others.
    private func updateTogether(_ paths: [FilePath], awaiting polled: PolledName) -> [Notice] {
        guard let first = paths.first else { return [] }
        let notices = updateEach([first])
        guard notices.isEmpty, recheckTimes[first] == nil, let entry = requested[first],
            let number = watchIDs[polled.directory], watches[number]?.awaiting[first] == polled.name
        else { return notices + updateEach(paths.dropFirst()) }
        // The parent of an empty directory is watched for the directory's name.
        let parents = entry.watches.filter { $0 != number && watches[$0]?.awaiting[first] != nil }
        var others: [FilePath] = []
        for path in paths.dropFirst() {
            guard let known = requested[path]?.watches else { continue }
            // It may lead to the directory by another way.
            guard parents.isSubset(of: known) else {
                others.append(path)
                continue
            }
            for other in known {
                let name = parents.contains(other) ? watches[other]?.awaiting[first] : nil
                watches[other]?.awaiting[path] = name
            }
            watches[number]?.passing.insert(path)
            watches[number]?.awaiting[path] = polled.name
            requested[path]?.watches.insert(number)
            requested[path]?.stableName = entry.stableName
            requested[path]?.isUnreadable = entry.isUnreadable
            recheckTimes[path] = nil
            polledNames[path] = nil
        }
        return updateEach(others)
    }

    /// Watches a directory again, for paths that only lead through it.
    private func watchAgain(_ directory: FileIdentity, for paths: Set<FilePath>) -> [Notice] {
        guard let first = paths.min(by: { $0.string < $1.string }) else { return [] }
        let notices = updateEach([first])
        guard notices.isEmpty, let number = watchIDs[directory], watches[number]?.passing.contains(first) == true else {
            return notices + updateEach(paths.subtracting([first]))
        }
        for path in paths where requested[path] != nil {
            watches[number]?.passing.insert(path)
            requested[path]?.watches.insert(number)
        }
        return []
    }

    /// Handles a name that came or went in a requested directory, or in one where a name is awaited.
    func namesChanged(_ event: InotifyEvent, name: FilePath.Component, watch: KernelWatch) -> [Notice] {
        let awaiting = watch.awaiting.filter { $0.value == name }.keys
        var affectedPaths = Set(awaiting)
        let hasArrived = event.mask & UInt32(IN_CREATE | IN_MOVED_TO) != 0
        // A change may tell whether the last directory on the way is empty. If the directory itself is awaited, every
        // change is checked anyway.
        for path in watch.targets.keys {
            guard let entry = requested[path] else { continue }
            if hasArrived ? entry.isEmpty : entry.stableName == name { affectedPaths.insert(path) }
        }
        departedName = hasArrived ? nil : name
        defer { departedName = nil }
        var notices = updateEach(affectedPaths)
        // The others wait for a name in a directory that may be empty now.
        let others = watch.awaiting.keys.filter {
            !affectedPaths.contains($0) && !hasArrived && requested[$0]?.stableName == name
        }
        for (awaited, paths) in Dictionary(grouping: others, by: { watch.awaiting[$0] }) {
            guard let awaited else { continue }
            let polled = PolledName(directory: watch.identity, name: awaited)
            notices += updateTogether(paths.sorted { $0.string < $1.string }, awaiting: polled)
        }
        guard affectedPaths.isEmpty, notices.isEmpty, let current = watches[event.watch], current.targets.isEmpty else {
            return notices
        }
        return unrelatedNameChanged(event.watch, current)
    }

    private func unrelatedNameChanged(_ number: CInt, _ watch: KernelWatch) -> [Notice] {
        guard watch.mask & Self.nameEvents != 0 else { return [] }
        guard !watch.awaiting.isEmpty else {
            // Nothing is awaited in it any more. A watch for fewer events replaces this one.
            end(number)
            return watchAgain(watch.identity, for: watch.passing)
        }
        guard let due = awaitedNames.recordOther(in: watch.identity, at: .now) else { return [] }
        end(number)
        for (path, name) in watch.awaiting {
            recheckTimes[path] = recheckTimes[path].map { min($0, due) } ?? due
            polledNames[path] = PolledName(directory: watch.identity, name: name)
        }
        return watchAgain(watch.identity, for: watch.passing.subtracting(watch.awaiting.keys))
    }
}
