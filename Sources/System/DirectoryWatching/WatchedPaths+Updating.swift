import Glibc
import LinuxSystem
import SystemPackage

/// Resolution of the requested directories, and the watches on the way to them.
extension WatchedPaths {
    /// The time until directories must be rechecked, or nil if events suffice.
    var timeUntilRecheck: Duration? {
        recheckTimes.values.min().map { max(.zero, ContinuousClock.now.duration(to: $0)) }
    }

    func recheckDuePaths() -> [Notice] {
        guard !recheckTimes.isEmpty else { return [] }
        let now = ContinuousClock.now
        let due = recheckTimes.filter { $0.value <= now }.keys
        return Dictionary(grouping: due) { polledNames[$0] }.map { ($0.key, $0.value.sorted { $0.string < $1.string }) }
            .sorted { $0.1.first?.string ?? "" < $1.1.first?.string ?? "" }
            .flatMap { name, paths in name.map { poll($0, for: paths) } ?? updateEach(paths) }
    }

    /// Checks whether the paths lead to other directories than before, or take another way.
    func updateAll() -> [Notice] { updateEach(requested.keys) }

    /// Restores all watches after events were lost. The kernel may have ended any watch without a notice.
    func restoreWatches() -> [Notice] {
        files.endAll(instance)
        // Modify events are never suspended while events are handled.
        suspendedFiles = [:]
        return updateAll()
    }

    /// Updates all paths that depend on the watch.
    func updatePaths(of watch: KernelWatch) -> [Notice] {
        updateEach(watch.passing.union(watch.targets.keys).union(watch.awaiting.keys))
    }

    func updateEach(_ paths: some Sequence<FilePath>) -> [Notice] {
        paths.sorted { $0.string < $1.string }.flatMap { path -> [Notice] in
            do throws(SystemError) {
                return try update(path)
            } catch {
                remove(path)
                return [.unwatchable(path, error)]
            }
        }
    }

    /// Resolves the directory, or the place to wait for it, and returns a notice if that changed. Throws if it can't be
    /// followed.
    func update(_ path: FilePath) throws(SystemError) -> [Notice] {
        guard requested[path] != nil else { return [] }
        recheckTimes[path] = nil
        polledNames[path] = nil
        defer { endUnused() }
        // Triggers a file system that is mounted on access (autofs).
        _ = FileStatus(following: path)
        // Sets the watches and then checks again, so that no change is missed. Each round but the last found a
        // concurrent change of the path.
        for _ in 0..<64 {
            let walk = try PathWalk(path)
            removeWatches(of: path)
            let target = try watch(walk, of: path)
            if try PathWalk(path).isSame(as: walk) { return setTarget(target, of: path) }
        }
        throw SystemError("inotify_add_watch", .resourceTemporarilyUnavailable, path: path)
    }

    private func setTarget(_ target: CInt?, of path: FilePath) -> [Notice] {
        let before = requested[path]?.target
        guard before != target else { return [] }
        requested[path]?.target = target
        fastPath.invalidateCache()
        return (before == nil ? [] : [.directoryVanished(path)]) + (target == nil ? [] : [.directoryAppeared(path)])
    }

    // MARK: Watches

    /// Sets the watches on the way. Returns the directory's own watch if it exists.
    private func watch(_ walk: PathWalk, of path: FilePath) throws(SystemError) -> CInt? {
        // No event reports a granted permission, and a name that no file system accepts can never appear.
        if let errno = walk.obstacle?.errno, errno == .permissionDenied || errno == .fileNameTooLong {
            throw SystemError("open", errno, path: path)
        }
        for step in walk.steps where step.parent != nil && step !== walk.deepest { try pass(step, of: path) }
        guard let deepest = walk.deepest else { return nil }
        let kinds = requested[path]?.kinds ?? []
        let number = try set(deepest, for: path) { watch in
            watch.passing.insert(path)
            if walk.target === deepest { watch.targets[path] = kinds }
            if let name = walk.obstacle?.name { watch.awaiting[path] = name }
        }
        try awaitRemoval(of: deepest, for: path)
        return walk.target === deepest ? number : nil
    }

    /// Watches a step. An unreadable directory can be passed but not watched, so the path is rechecked from time to
    /// time.
    private func pass(_ step: PathWalk.Step, of path: FilePath) throws(SystemError) {
        do throws(SystemError) {
            try set(step, for: path) { $0.passing.insert(path) }
        } catch {
            guard error.errno == .permissionDenied else { throw error }
            recheckTimes[path] = .now.advanced(by: Self.recheckInterval)
        }
    }

    static let recheckInterval = Duration.seconds(10)

    /// Prepares for the removal of an empty directory. If some process has it open, for example as its working
    /// directory, only its parent gets an event.
    private func awaitRemoval(of step: PathWalk.Step, for path: FilePath) throws(SystemError) {
        do throws(SystemError) {
            requested[path]?.stableName = try step.stableName(otherThan: departedName)
            requested[path]?.isUnreadable = false
        } catch {
            guard error.errno == .permissionDenied || error.errno == .noSuchFileOrDirectory else { throw error }
            requested[path]?.isUnreadable = true
        }
        guard requested[path]?.isEmpty == true, let parent = step.parent, let name = step.name else { return }
        do throws(SystemError) {
            try set(parent, for: path) { $0.awaiting[path] = name }
        } catch {
            guard error.errno == .permissionDenied else { throw error }
            recheckTimes[path] = .now.advanced(by: Self.recheckInterval)
        }
    }

    @discardableResult
    private func set(
        _ step: PathWalk.Step, for path: FilePath, _ change: (inout KernelWatch) -> Void
    ) throws(SystemError) -> CInt {
        let identity = step.status.identity
        // A file's inode number may now be a directory's. The kernel has ended the former watch and is about to report
        // that.
        let known = watchIDs[identity].flatMap { number in
            watches[number].flatMap { $0.isDirectory == step.isDirectory ? (number, $0) : nil }
        }
        var watch = known?.1 ?? KernelWatch(identity: identity, isDirectory: step.isDirectory)
        change(&watch)
        watch.mask = watch.neededMask
        // Requested even if the mask is the same: the inode number may be a new directory's.
        var number = try instance.watch(step.file, mask: watch.mask, path: step.path)
        if let known, known.0 != number {
            // The kernel has ended the former watch and is about to report that to its owners.
            watch = KernelWatch(identity: identity, isDirectory: step.isDirectory)
            change(&watch)
            watch.mask = watch.neededMask
            number = try instance.watch(step.file, mask: watch.mask, path: step.path)
        }
        watches[number] = watch
        watchIDs[identity] = number
        requested[path]?.watches.insert(number)
        return number
    }

    /// Removes the path from all of its watches.
    func removeWatches(of path: FilePath) {
        for number in requested[path]?.watches ?? [] {
            watches[number]?.targets[path] = nil
            watches[number]?.passing.remove(path)
            watches[number]?.awaiting[path] = nil
            if watches[number]?.isUnused == true { unusedWatches.insert(number) }
        }
        requested[path]?.watches = []
    }

    /// Ends the watches that no path needs.
    func endUnused() {
        for number in unusedWatches where watches[number]?.isUnused == true { end(number) }
        unusedWatches = []
    }

    func end(_ number: CInt) {
        guard let watch = watches.removeValue(forKey: number) else { return }
        if watchIDs[watch.identity] == number { watchIDs[watch.identity] = nil }
        instance.remove(number)
    }
}
