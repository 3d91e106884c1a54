import Dispatch
import Glibc
import LinuxSystem
import Synchronization

/// Runs a shell command for events, one run at a time on a thread of its own; events during a run cause one more. Each
/// event is covered by a run that has succeeded: one that fails is repeated, together with what came meanwhile.
final class EventCommand: Sendable {
    private struct State {
        var next: EventRun?
        var isFinishing = false
        /// Up to where runs have succeeded.
        var done: String
        /// Of the last run.
        var status: Int32 = 0
    }

    private let command: ShellCommand
    private let tokenFile: TokenFile?
    private let state: Mutex<State>
    private let work = DispatchSemaphore(value: 0)
    private let finishing = DispatchSemaphore(value: 0)
    private let thread = Mutex<SystemThread?>(nil)

    private static let firstPause = Duration.seconds(1)
    private static let longestPause = Duration.seconds(60)

    /// `token`: up to where nothing is to be done. `tokenFile` is written after each run that has succeeded.
    init(_ command: String, from token: String, tokenFile: TokenFile?) {
        self.command = ShellCommand(words: command)
        self.tokenFile = tokenFile
        state = Mutex(State(done: token))
    }

    /// Returns at once. Throws `SystemError` when there can be no thread.
    func run(_ event: EventRun) throws {
        add(event)
        try thread.withLock { thread in
            if thread == nil { thread = try SystemThread(name: "gs-exec") { [self] in loop() } }
        }
        work.signal()
    }

    private func add(_ event: EventRun) {
        state.withLock { state in
            if state.next == nil { state.next = event } else { state.next?.add(event) }
        }
    }

    /// Up to where runs have succeeded.
    var done: String { state.withLock { $0.done } }

    /// Lets what is left have one more run, and returns the last one's exit status.
    func finish() -> Int32 {
        state.withLock { $0.isFinishing = true }
        finishing.signal()
        work.signal()
        // The command is the user's; how long it takes is too.
        _ = thread.withLock { $0.take() }?.join(within: .seconds(86_400))
        return state.withLock { $0.status }
    }

    // MARK: The command's thread

    private func loop() {
        var pause = Self.firstPause
        while true {
            work.wait()
            let (run, done, isFinishing) = state.withLock { state in
                defer { state.next = nil }
                return (state.next, state.done, state.isFinishing)
            }
            if let run {
                if perform(run, done) {
                    pause = Self.firstPause
                } else if !isFinishing {
                    restore(run)
                    _ = finishing.wait(timeout: .now() + .nanoseconds(Int(pause.nanoseconds)))
                    pause = min(pause * 2, Self.longestPause)
                    work.signal()
                }
            }
            if isFinishing { return }
        }
    }

    /// It is still to be done, before what came meanwhile.
    private func restore(_ run: EventRun) {
        state.withLock { state in
            var both = run
            if let later = state.next { both.add(later) }
            state.next = both
        }
    }

    private func perform(_ run: EventRun, _ done: String) -> Bool {
        let status = command.run(run.variables(done: done))
        state.withLock { state in
            state.status = status
            if status == 0 { state.done = run.token }
        }
        guard status == 0 else {
            Output.write("groupstore: \(command.words): exit status \(status)", to: STDERR_FILENO)
            return false
        }
        do {
            try tokenFile?.write(run.token)
        } catch {
            // The next start does it once more: at least once it is.
            let words = (error as? CommandFailure)?.message ?? "\(error)"
            Output.write("groupstore: the token is not kept: \(words)", to: STDERR_FILENO)
        }
        return true
    }
}
