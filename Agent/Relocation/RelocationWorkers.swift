import LinuxSystem
import Synchronization
import SystemPackage

/// A thing that a relocation touches. Two relocations that share one run one after the other.
enum RelocationKey: Hashable, Sendable {
    /// A name in a directory, by whatever path.
    case name(FileIdentity, FilePath.Component)
    /// A path whose directory doesn't exist.
    case path(FilePath)
    /// A file, under any name.
    case file(FileIdentity)
    /// An interrupted relocation in a group.
    case recovery(FilePath)

    /// Returns the keys of the file at a path, links followed, or of a file that may come there.
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

/// The threads that relocations run on: one for each running relocation, and none otherwise.
///
/// Relocations of different stores don't wait for each other, up to `maximumThreads` at once. Clients have at most
/// `maximumClientThreads` of the threads, so that the configured stores always find some.
final class RelocationWorkers: Sendable {
    static let maximumThreads = 32
    static let maximumClientThreads = 16
    /// The maximum number of clients' relocations that wait for a thread or for another relocation of the same store.
    static let maximumWaitingClients = 256

    struct Job: Sendable {
        let keys: Set<RelocationKey>
        let isFromClient: Bool
        let run: @Sendable () -> Void
    }

    private struct State {
        var waiting: [Job] = []
        var running: [UInt64: Job] = [:]
        var next: UInt64 = 0

        /// Removes and returns the next job that shares no key with a running job or one that has waited longer.
        mutating func dequeue() -> (number: UInt64, job: Job)? {
            guard running.count < maximumThreads else { return nil }
            var keysInUse = running.values.reduce(into: Set<RelocationKey>()) { $0.formUnion($1.keys) }
            let clients = running.values.filter(\.isFromClient).count
            for (index, job) in waiting.enumerated() {
                let hasThread = !job.isFromClient || clients < maximumClientThreads
                if hasThread, keysInUse.isDisjoint(with: job.keys) {
                    waiting.remove(at: index)
                    next += 1
                    running[next] = job
                    return (next, job)
                }
                keysInUse.formUnion(job.keys)
            }
            return nil
        }
    }

    private let state = Mutex(State())

    /// Queues a job. Returns false if too many clients' jobs wait already.
    func submit(_ job: Job) -> Bool {
        let isAccepted = state.withLock { state in
            if job.isFromClient, state.waiting.filter(\.isFromClient).count >= Self.maximumWaitingClients {
                return false
            }
            state.waiting.append(job)
            return true
        }
        startWaiting()
        return isAccepted
    }

    private func startWaiting() {
        while let (number, job) = state.withLock({ $0.dequeue() }) {
            do throws(SystemError) {
                _ = try SystemThread(name: "relocation") { [self] in finish(number, job) }
            } catch {
                // No thread can be created: the job runs here, and delays the others.
                finish(number, job)
            }
        }
    }

    private func finish(_ number: UInt64, _ job: Job) {
        job.run()
        state.withLock { $0.running[number] = nil }
        startWaiting()
    }

    /// True if no job runs or waits.
    var isIdle: Bool { state.withLock { $0.running.isEmpty && $0.waiting.isEmpty } }
}
