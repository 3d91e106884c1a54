import AgentProtocol
import LinuxSystem
import Logging
import StoreHazards
import StoreWatching
import Synchronization
import SystemPackage

/// Copies what a program has committed to lost files of a store, so that it survives the program: to the group's
/// `.groupstore/rescue`, when the hazard begins, and again while the program goes on committing.
///
/// A child process of the same program copies (`groupstore rescue --copy-only`). In this one, closing a descriptor of a
/// database would drop the locks of a connection to it, and a big copy would delay events.
package final class BranchSaver: Sendable {
    /// What a look without opening a file tells of it.
    private struct Version: Hashable {
        let identity: FileIdentity
        let size: Int64
        let modified: Int64
    }

    private struct State {
        /// The stores in danger, and when to copy next.
        var due: [StoreAddress: ContinuousClock.Instant] = [:]
        /// The lost files of each store at the last copy, and when the next one may begin.
        var last: [StoreAddress: (files: Set<Version>, next: ContinuousClock.Instant)] = [:]
        /// The notes of each store's last copy.
        var notes: [FilePath: [String]] = [:]
        var isStopping = false
        var thread: SystemThread?
    }

    private let configuration: CurrentConfiguration
    private let states: FollowingStates
    private let program: FilePath?
    private let log: Logger
    private let state = Mutex(State())
    private let work = MonotonicSemaphore()

    /// The bytes that a store's branches may have together.
    static let maximumBytes: Int64 = 4 << 30
    /// The time between two copies of a branch that goes on.
    private static let interval = Duration.seconds(60)
    /// Copying takes at most one part of so many of the time.
    private static let share = 20
    /// The time that one child may run.
    private static let timeout = Duration.seconds(600)

    package init(configuration: CurrentConfiguration, states: FollowingStates, program: FilePath?, log: Logger) {
        (self.configuration, self.states, self.program, self.log) = (configuration, states, program, log)
    }

    /// Receives an event of a store, on the feed's thread.
    func receive(_ event: StoreEvent, of store: StoreAddress) {
        guard case .hazard(let hazard) = event, program != nil,
            StoreHazard.Code(rawValue: hazard.code)?.isSplit == true
        else { return }
        let started = state.withLock { state in
            if state.thread == nil, !state.isStopping {
                state.thread = try? SystemThread(name: "gs-rescue") { [self] in loop() }
            }
            state.due[store] = max(.now, state.last[store]?.next ?? .now)
            return state.thread != nil
        }
        if started { work.signal() }
    }

    /// Stops the thread. A copy under way goes on: it is whole, or the next one replaces it.
    package func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        work.signal()
        _ = thread?.join(within: .seconds(1))
    }

    private func loop() {
        while true {
            if let next = state.withLock({ $0.due.values.min() }) {
                work.wait(within: ContinuousClock.now.duration(to: next))
            } else {
                work.wait()
            }
            let (stores, isStopping) = state.withLock { state in
                (state.due.filter { $0.value <= .now }.map(\.key), state.isStopping)
            }
            if isStopping { return }
            for store in stores { copy(store) }
        }
    }

    /// Copies the branches of a store, unless nothing was committed to them since the last copy.
    private func copy(_ store: StoreAddress) {
        let held = states.hazards(store).flatMap { hazard in
            [hazard.held, hazard.lost?.database, hazard.lost?.log].compactMap { $0?.path(of: hazard.holder.pid) }
        }
        let files = Set(
            held.compactMap { FileStatus(following: $0) }.map {
                Version(identity: $0.identity, size: $0.size, modified: $0.modified)
            })
        let last = state.withLock { $0.last[store]?.files }
        guard !files.isEmpty, configuration.value.rescue == .on, let path = path(of: store) else {
            return state.withLock { $0.due[store] = nil }
        }
        let begun = ContinuousClock.now
        if files != last { run(path) }
        let end = ContinuousClock.now
        state.withLock { state in
            let next = end.advanced(by: begun.duration(to: end) * Self.share)
            state.last[store] = (files, next)
            state.due[store] = max(next, end.advanced(by: Self.interval))
        }
    }

    private func path(of store: StoreAddress) -> FilePath? {
        guard let name = FilePath.Component(bytes: store.name) else { return nil }
        return configuration.value.group(store.group)?.directory.appending(name)
    }

    private func run(_ store: FilePath) {
        guard let program else { return }
        let words = [
            "groupstore", "rescue", "--copy-only", "--json", "--no-links", "--maximum-bytes=\(Self.maximumBytes)", "--",
        ]
        var (summary, notes) = (JSONObject?.none, [String]())
        defer { report(notes, of: store) }
        do {
            let output = try ChildProcess.output(
                program, words.map { Array($0.utf8) } + [store.bytes], deadline: Deadline(after: Self.timeout))
            var lines = LineBuffer(limit: max(output.count + 1, 1))
            lines.append(output)
            while let line = try lines.next() {
                guard case .event(let type, let object) = try AgentMessage(parsing: line) else { continue }
                switch type {
                case "branch": report(object, of: store)
                case "note": notes.append(object.string("text") ?? "")
                case "summary": summary = object
                default: break
                }
            }
        } catch {
            return log.warning("\(PrintablePath(store)): can't copy what only a program has: \(error)")
        }
        guard let summary else {
            return log.warning("\(PrintablePath(store)): the copy of what only a program has was not finished")
        }
        guard let error = summary.object("error") else { return }
        log.warning("\(error.string("message") ?? "") (\(error.string("hint") ?? ""))")
    }

    /// Logs what the last copy of the store hasn't said.
    private func report(_ notes: [String], of store: FilePath) {
        let former = state.withLock { $0.notes.updateValue(notes, forKey: store) } ?? []
        let prefix = "\(PrintablePath(store)): "
        for note in notes where !former.contains(note) {
            log.notice("\(note.hasPrefix(prefix) ? "" : prefix)\(note)")
        }
    }

    private func report(_ branch: JSONObject, of store: FilePath) {
        // A note names the files of a damaged branch: they can't be joined.
        guard branch.string("damage") == nil, let copy = branch.path("copy"), let program = branch.string("program"),
            let pid = branch.integer("pid")
        else { return }
        log.notice(
            """
            \(PrintablePath(store)): what \(program) (pid \(pid)) has committed to lost files is copied to \
            \(PrintablePath(FilePath(bytes: copy) ?? store)); to join it: groupstore rescue \(store.shellWord)
            """)
    }
}
