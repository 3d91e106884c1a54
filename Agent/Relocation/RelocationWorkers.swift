import LinuxSystem
import Synchronization
import SystemPackage

/// What a relocation touches: two that share one of these run one after the other.
enum RelocationKey: Hashable, Sendable {
    /// A name in a directory, however the directory is reached.
    case name(FileIdentity, FilePath.Component)
    /// A path whose directory isn't there.
    case path(FilePath)
    /// A file, under whatever name.
    case file(FileIdentity)
    /// What was interrupted in a group.
    case recovery(FilePath)

    /// The keys of what is at a path, links followed, or may come there.
    static func of(_ path: FilePath) -> Set<RelocationKey> {
        var keys: Set<RelocationKey> = []
        if let name = path.lastComponent, let directory = try? Directory(path.removingLastComponent()) {
            keys.insert(.name(directory.identity, name))
        } else {
            keys.insert(.path(path))
        }
        if let file = FileStatus(following: path)?.identity { keys.insert(.file(file)) }
        return keys
    }
}

/// The threads that relocations run on: one for each that is under way, and none while there is nothing to do.
///
/// Relocations of different stores don't wait for each other, up to `mostThreads` at once. Clients have at most
/// `mostOfClients` of the threads, so that the configured stores always find some.
final class RelocationWorkers: Sendable {
    static let mostThreads = 32
    static let mostOfClients = 16
    /// Clients' relocations that wait for a thread, or for one that touches the same store.
    static let mostWaitingClients = 256

    struct Job: Sendable {
        let keys: Set<RelocationKey>
        let isClients: Bool
        let run: @Sendable () -> Void
    }

    private struct State {
        var waiting: [Job] = []
        var running: [UInt64: Job] = [:]
        var next: UInt64 = 0

        /// The next job that may run: none that runs or has waited longer shares a key with it.
        mutating func takeNext() -> (number: UInt64, job: Job)? {
            guard running.count < mostThreads else { return nil }
            var taken = running.values.reduce(into: Set<RelocationKey>()) { $0.formUnion($1.keys) }
            let clients = running.values.filter(\.isClients).count
            for (index, job) in waiting.enumerated() {
                let hasThread = !job.isClients || clients < mostOfClients
                if hasThread, taken.isDisjoint(with: job.keys) {
                    waiting.remove(at: index)
                    next += 1
                    running[next] = job
                    return (next, job)
                }
                taken.formUnion(job.keys)
            }
            return nil
        }
    }

    private let state = Mutex(State())

    /// False when too many of clients wait already.
    func submit(_ job: Job) -> Bool {
        let isAccepted = state.withLock { state in
            if job.isClients, state.waiting.filter(\.isClients).count >= Self.mostWaitingClients { return false }
            state.waiting.append(job)
            return true
        }
        startWaiting()
        return isAccepted
    }

    private func startWaiting() {
        while let (number, job) = state.withLock({ $0.takeNext() }) {
            do throws(SystemError) {
                _ = try SystemThread(name: "relocation") { [self] in finish(number, job) }
            } catch {
                // No thread is to be had: it is done here, and holds the others up.
                finish(number, job)
            }
        }
    }

    private func finish(_ number: UInt64, _ job: Job) {
        job.run()
        state.withLock { $0.running[number] = nil }
        startWaiting()
    }

    /// Whether nothing runs or waits.
    var isIdle: Bool { state.withLock { $0.running.isEmpty && $0.waiting.isEmpty } }
}
