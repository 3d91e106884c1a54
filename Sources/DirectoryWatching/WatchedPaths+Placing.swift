import Glibc
import LinuxSystem
import SystemPackage

/// Finding the wanted directories, and setting the watches on the way to them.
extension WatchedPaths {
    /// How long until directories are to be looked for again; nil when only an event can tell of them.
    var timeUntilRevisit: Duration? {
        revisits.values.min().map { max(.zero, ContinuousClock.now.duration(to: $0)) }
    }

    func revisit() -> [Notice] {
        guard !revisits.isEmpty else { return [] }
        let now = ContinuousClock.now
        return placeEach(revisits.filter { $0.value <= now }.keys)
    }

    /// Looks whether the paths lead to other directories than they did, or go there by another way.
    func placeAll() -> [Notice] { placeEach(wanted.keys) }

    /// The same after events were lost: the kernel may have ended any watch without a word, though a directory that was
    /// made since has its number. So each is asked for again.
    func placeAnew() -> [Notice] {
        for number in watches.keys { watches[number]?.mask = 0 }
        files.endAll(tools)
        // No rest lasts while events are taken.
        restingFiles = [:]
        return placeAll()
    }

    /// Looks for all that the watch is there for.
    func place(all watch: KernelWatch) -> [Notice] {
        placeEach(watch.passing.union(watch.targets.keys).union(watch.awaiting.keys))
    }

    func placeEach(_ paths: some Sequence<FilePath>) -> [Notice] {
        paths.sorted { $0.string < $1.string }.flatMap { path -> [Notice] in
            do throws(SystemError) {
                return try place(path)
            } catch {
                remove(path)
                return [.unwatchable(path, error)]
            }
        }
    }

    /// Finds the directory, or where to wait for it, and tells when that changed. Throws when it can't be followed.
    func place(_ path: FilePath) throws(SystemError) -> [Notice] {
        guard wanted[path] != nil else { return [] }
        revisits[path] = nil
        defer { endUnused() }
        // A file system that is mounted when somebody asks for it (autofs).
        _ = FileStatus(following: path)
        // Watches first, then looks again, so that nothing falls between. Each round but the last found that somebody
        // changed the path meanwhile.
        for _ in 0..<64 {
            let walk = try PathWalk(path)
            withdraw(path)
            let target = try watch(walk, path)
            if try PathWalk(path).isSame(as: walk) { return found(target, path) }
        }
        throw SystemError("inotify_add_watch", .resourceTemporarilyUnavailable, path: path)
    }

    private func found(_ target: CInt?, _ path: FilePath) -> [Notice] {
        let before = wanted[path]?.target
        guard before != target else { return [] }
        wanted[path]?.target = target
        marks.forgetFound()
        return (before == nil ? [] : [.directoryVanished(path)]) + (target == nil ? [] : [.directoryAppeared(path)])
    }

    // MARK: Watches

    /// Watches all that is on the way; returns the directory's own watch, when it is there.
    private func watch(_ walk: PathWalk, _ path: FilePath) throws(SystemError) -> CInt? {
        // Of a right nothing tells when it is given; a name that no file system takes will never be there.
        if let errno = walk.obstacle?.errno, errno == .permissionDenied || errno == .fileNameTooLong {
            throw SystemError("open", errno, path: path)
        }
        for step in walk.steps where step.parent != nil && step !== walk.deepest { try pass(step, path) }
        guard let deepest = walk.deepest else { return nil }
        let kinds = wanted[path]?.kinds ?? []
        let number = try set(deepest, for: path) { watch in
            watch.passing.insert(path)
            if walk.target === deepest { watch.targets[path] = kinds }
            if let name = walk.obstacle?.name { watch.awaiting[path] = name }
        }
        try awaitRemoval(of: deepest, path)
        return walk.target === deepest ? number : nil
    }

    /// What may not be read can't be watched, though it may be gone through: it is looked at now and then.
    private func pass(_ step: PathWalk.Step, _ path: FilePath) throws(SystemError) {
        do throws(SystemError) {
            try set(step, for: path) { $0.passing.insert(path) }
        } catch {
            guard error.errno == .permissionDenied else { throw error }
            revisits[path] = .now.advanced(by: Self.unseenInterval)
        }
    }

    static let unseenInterval = Duration.seconds(10)

    /// An empty directory can be removed. Where some process has it open (as its working directory, say), its parent
    /// alone hears of that.
    private func awaitRemoval(of step: PathWalk.Step, _ path: FilePath) throws(SystemError) {
        do throws(SystemError) {
            wanted[path]?.lastingName = try step.lastingName()
            wanted[path]?.isUnreadable = false
        } catch {
            guard error.errno == .permissionDenied || error.errno == .noSuchFileOrDirectory else { throw error }
            wanted[path]?.isUnreadable = true
        }
        guard wanted[path]?.isEmpty == true, let parent = step.parent, let name = step.name else { return }
        do throws(SystemError) {
            try set(parent, for: path) { $0.awaiting[path] = name }
        } catch {
            guard error.errno == .permissionDenied else { throw error }
            revisits[path] = .now.advanced(by: Self.unseenInterval)
        }
    }

    @discardableResult
    private func set(
        _ step: PathWalk.Step, for path: FilePath, _ change: (inout KernelWatch) -> Void
    ) throws(SystemError) -> CInt {
        let identity = step.status.identity
        // A file's number may be a directory's now: the kernel has ended that watch, and is about to say so.
        let known = numbers[identity].flatMap { number in
            watches[number].flatMap { $0.isDirectory == step.isDirectory ? (number, $0) : nil }
        }
        var watch = known?.1 ?? KernelWatch(identity: identity, isDirectory: step.isDirectory)
        change(&watch)
        var number = known?.0 ?? 0
        if known == nil || watch.mask != watch.neededMask {
            watch.mask = watch.neededMask
            number = try tools.watch(again: step.file, mask: watch.mask, path: step.path)
            if known.map({ $0.0 != number }) == true {
                // The kernel has ended the former one, and is about to say so: to those whose it is.
                watch = KernelWatch(identity: identity, isDirectory: step.isDirectory)
                change(&watch)
                watch.mask = watch.neededMask
                number = try tools.watch(again: step.file, mask: watch.mask, path: step.path)
            }
        }
        watches[number] = watch
        numbers[identity] = number
        wanted[path]?.watches.insert(number)
        return number
    }

    /// No watch is there for the path any more.
    func withdraw(_ path: FilePath) {
        for number in wanted[path]?.watches ?? [] {
            watches[number]?.targets[path] = nil
            watches[number]?.passing.remove(path)
            watches[number]?.awaiting[path] = nil
            if watches[number]?.isUnused == true { unused.insert(number) }
        }
        wanted[path]?.watches = []
    }

    /// Ends the watches that nothing is followed by.
    func endUnused() {
        for number in unused where watches[number]?.isUnused == true { end(number) }
        unused = []
    }

    func end(_ number: CInt) {
        guard let watch = watches.removeValue(forKey: number) else { return }
        if numbers[watch.identity] == number { numbers[watch.identity] = nil }
        tools.end(number)
    }
}
