import AgentProtocol
import ChangeFeed
import DirectoryWatching
import Glibc
import LinuxSystem
import StoreHazards
import SystemPackage

/// What one process commits to files of a store that have lost their names.
final class FollowedBranch: Sendable {
    let store: StoreAddress
    let pid: Int32
    let file: FileIdentity
    let observer: BranchObserver
    /// The process's open file, as events name it: `N` in `/proc/PID/fd`.
    let directory: FilePath
    let name: FilePath.Component

    fileprivate init(
        _ store: StoreAddress, pid: Int32, file: FileIdentity, _ observer: BranchObserver, at path: FilePath,
        named name: FilePath.Component
    ) {
        (self.store, self.pid, self.file, self.observer) = (store, pid, file, observer)
        (directory, self.name) = (path.removingLastComponent(), name)
    }

    /// Opens what a process has open. It may have closed it, and opened something else.
    fileprivate static func open(_ file: HeldFile, of pid: Int32) throws(SystemError) -> Descriptor {
        let path = file.path(of: pid)
        let descriptor = try Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK)
        guard try descriptor.status(path: path).identity == file.identity else {
            throw SystemError("open", .noSuchFileOrDirectory, path: path)
        }
        return descriptor
    }
}

/// The branches that are followed, and when to poll them. A poll follows the event of a write to a branch's file.
struct FollowedBranches {
    private(set) var all: [FollowedBranch] = []
    /// The branches that were written since their last poll began, and when the next one may begin.
    private var written: [ObjectIdentifier: ContinuousClock.Instant] = [:]
    private var next: [ObjectIdentifier: ContinuousClock.Instant] = [:]
    private var isPolling = false
    /// The last commits of branches that are no longer followed, of which their subscribers have been told. A store
    /// may be followed again while the hazard lasts.
    private var lastCommits: [StoreAddress: [BranchStart]] = [:]

    /// The most branches of one store; a group of processes that a program has forked shares one.
    static let maximum = 16
    /// Polls take at most one part of so many of the time.
    private static let share = 10
    private static let shortestInterval = Duration.milliseconds(10)

    /// The time of the next poll; nil if nothing was written.
    var due: ContinuousClock.Instant? { isPolling ? nil : written.values.min() }

    mutating func add(_ branch: FollowedBranch) {
        all.append(branch)
        recordWrite(to: branch)
    }

    mutating func remove(_ branch: FollowedBranch) {
        all.removeAll { $0 === branch }
        if let position = branch.observer.position {
            let former = Array(lastCommits[branch.store, default: []].suffix(Self.maximum - 1))
            lastCommits[branch.store] = former + [position]
        }
        written[ObjectIdentifier(branch)] = nil
        next[ObjectIdentifier(branch)] = nil
    }

    /// Returns the commits of a store's branches after which to go on.
    func starts(of store: StoreAddress) -> [BranchStart] { lastCommits[store] ?? [] }

    /// Forgets a store's branches: no process has lost files of it open.
    mutating func forget(_ store: StoreAddress) { lastCommits[store] = nil }

    func branch(_ event: DirectoryEvent) -> FollowedBranch? {
        all.first { $0.name == event.name && $0.directory == event.directory }
    }

    mutating func recordWrite(to branch: FollowedBranch) {
        let id = ObjectIdentifier(branch)
        if written[id] == nil { written[id] = next[id] ?? .now }
    }

    /// Begins a poll of the branches that are due, and returns them.
    mutating func begin(at now: ContinuousClock.Instant) -> [FollowedBranch] {
        guard let due, due <= now else { return [] }
        let found = all.filter { written[ObjectIdentifier($0)].map { $0 <= now } ?? false }
        for branch in found { written[ObjectIdentifier(branch)] = nil }
        isPolling = true
        return found
    }

    mutating func end(_ branches: [FollowedBranch], after time: Duration) {
        isPolling = false
        let pause = max(time * Self.share, Self.shortestInterval)
        for branch in branches where all.contains(where: { $0 === branch }) {
            next[ObjectIdentifier(branch)] = .now.advanced(by: pause)
            if let at = written[ObjectIdentifier(branch)] {
                written[ObjectIdentifier(branch)] = max(at, .now.advanced(by: pause))
            }
        }
    }
}

extension FollowedStores {
    /// Follows the branches of a store's hazards, and no others. A hazard whose branch can't be followed says why.
    func followBranches(of address: StoreAddress, _ found: inout [StoreHazard]) {
        let store = stores[address]
        let isAwake = store.map { !$0.isDormant } ?? false
        for branch in branches.all where branch.store == address {
            let isThere = found.contains { $0.holder.pid == branch.pid && $0.branchFile?.identity == branch.file }
            if !isThere || !isAwake { end(branch) }
        }
        guard let store, isAwake else { return }
        for index in found.indices where found[index].code.isSplit {
            guard let file = found[index].branchFile else {
                found[index].unfollowedReason = "the log can't be found"
                continue
            }
            do throws(SystemError) {
                try follow(file, found[index], of: store)
            } catch {
                // It has closed the file: the next look tells.
                if error.errno != .noSuchFileOrDirectory { found[index].unfollowedReason = error.message }
            }
        }
        // A look that began before a file lost its name says nothing.
        if !found.contains(where: \.code.isSplit), !hazards.isRequested(address) {
            store.forgetBranchStarts()
            branches.forget(address)
        }
    }

    private func follow(_ file: HeldFile, _ hazard: StoreHazard, of store: FollowedStore) throws(SystemError) {
        let pid = hazard.holder.pid
        let others = branches.all.filter { $0.store == store.address }
        let path = file.path(of: pid)
        // Processes that were forked share their files.
        guard let name = path.lastComponent, !others.contains(where: { $0.file == file.identity }) else { return }
        guard others.count < FollowedBranches.maximum, descriptors.reserve(.branch) else {
            throw SystemError("open", .tooManyOpenFiles, path: path)
        }
        do {
            let descriptor = try FollowedBranch.open(file, of: pid)
            // Before it is read for the first time.
            try source.watchOpenFile(descriptor, as: name, in: path.removingLastComponent())
            let observer: BranchObserver
            if file == hazard.lost?.database {
                let journal = try hazard.lost?.journal.map { try FollowedBranch.open($0, of: pid) }
                observer = BranchObserver(database: descriptor, journal: journal)
            } else {
                let starts = store.branchStarts + branches.starts(of: store.address)
                observer = BranchObserver(log: descriptor, starts: starts)
            }
            branches.add(
                FollowedBranch(store.address, pid: pid, file: file.identity, observer, at: path, named: name))
        } catch {
            try? source.watchFile(name, in: path.removingLastComponent(), enabled: false)
            descriptors.release(.branch)
            throw error as? SystemError ?? SystemError("inotify_add_watch", .ioError, path: path)
        }
    }

    private func end(_ branch: FollowedBranch) {
        try? source.watchFile(branch.name, in: branch.directory, enabled: false)
        branches.remove(branch)
        descriptors.release(.branch)
    }

    /// Stops following the branches of a store; of all stores, if nil. A look at a hazard that lasts follows them
    /// again.
    func endBranches(of store: StoreAddress? = nil) {
        for branch in branches.all where store == nil || branch.store == store { end(branch) }
    }

    /// Records an event of a branch's file. Returns false for another event.
    func recordBranchEvent(_ event: DirectoryEvent) -> Bool {
        guard let branch = branches.branch(event) else { return false }
        branches.recordWrite(to: branch)
        // Its process may have closed the store.
        if event.kinds.contains(.closedAfterWriting) { hazards.request(branch.store, isUrgent: true) }
        return true
    }

    /// Polls the branches that are due, on a thread of their own: a log may be long.
    func pollBranches(_ now: ContinuousClock.Instant) {
        let due = branches.begin(at: now)
        guard !due.isEmpty else { return }
        let isUnderWay = loop.branchReader.perform { [loop] in
            let began = ContinuousClock.now
            let commits = due.map { ($0, $0.observer.poll()) }
            let time = began.duration(to: .now)
            loop.perform { stores in
                stores.branches.end(due, after: time)
                stores.publish(commits)
            }
        }
        if !isUnderWay { branches.end(due, after: .seconds(1)) }
    }

    /// Publishes the commits of branches. A hazard may be over by now.
    func publish(_ commits: [(FollowedBranch, TableChanges?)]) {
        for (branch, tables) in commits {
            guard let tables, let store = stores[branch.store] else { continue }
            let changed = ChangedTables(tables.names.map(\.text), isComplete: tables.isComplete)
            publish(.branchChange(changed, pid: branch.pid), of: store)
        }
    }
}
