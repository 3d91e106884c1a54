import CommandSupport
import Glibc
import LinuxSystem
import Synchronization

/// Runs a shell command for events, one run at a time on its own thread. Events during a run cause one more run. Each
/// event is covered by a run that succeeds: a failed run is repeated, together with later events.
final class EventCommand: Sendable {
    private struct State {
        var next: EventCommandInput?
        var isRunning = false
        var isFinishing = false
        /// True if no run begins any more.
        var isStopped = false
        /// The position up to which runs have succeeded.
        var done: String
        /// The exit status of the last run.
        var status: Int32 = 0
    }

    private let command: ShellCommand
    private let tokenFile: TokenFile?
    private let state: Mutex<State>
    private let work = MonotonicSemaphore()
    private let finishing = MonotonicSemaphore()
    private let thread = Mutex<SystemThread?>(nil)

    /// - Parameters:
    ///   - token: The position up to which nothing has to be done.
    ///   - tokenFile: Written after each successful run.
    init(_ command: String, from token: String, tokenFile: TokenFile?) {
        self.command = ShellCommand(words: command)
        self.tokenFile = tokenFile
        state = Mutex(State(done: token))
    }

    /// Schedules a run and returns at once. Throws `SystemError` if no thread can be created.
    func run(_ event: EventCommandInput) throws {
        add(event)
        try thread.withLock { thread in
            if thread == nil { thread = try SystemThread(name: "gs-exec") { [self] in loop() } }
        }
        work.signal()
    }

    private func add(_ event: EventCommandInput) {
        state.withLock { state in
            if state.next == nil { state.next = event } else { state.next?.add(event) }
        }
    }

    /// Moves the position past events that need no run, unless a run is pending: then the next call does. Throws
    /// `SystemError`.
    func skip(to token: String) throws {
        let isIdle = state.withLock { state in
            guard state.next == nil, !state.isRunning else { return false }
            state.done = token
            return true
        }
        if isIdle { try tokenFile?.prepare(token).publish() }
    }

    /// The position up to which runs have succeeded.
    var done: String { state.withLock { $0.done } }

    /// Gives pending events one more run, and returns the exit status of the last run.
    func finish() -> Int32 {
        state.withLock { $0.isFinishing = true }
        join()
        return state.withLock { $0.status }
    }

    /// Waits for the end of a run, and begins no other one: the next watch would begin it beside this one's.
    func stop(isQuiet: Bool) {
        let isRunning = state.withLock { state in
            (state.isStopped, state.isFinishing) = (true, true)
            return state.isRunning
        }
        if isRunning, !isQuiet {
            Output.write("groupstore: waiting for \(command.words); a second signal doesn't", to: STDERR_FILENO)
        }
        join()
    }

    private func join() {
        finishing.signal()
        work.signal()
        // The command is the user's, and so is its duration.
        _ = thread.withLock { $0.take() }?.join(within: .seconds(86_400))
    }

    // MARK: The command's thread

    private func loop() {
        var backoff = Backoff(first: .seconds(1), longest: .seconds(60))
        while true {
            work.wait()
            let (run, done, isFinishing) = state.withLock { state in
                if state.isStopped { state.next = nil }
                defer { state.next = nil }
                state.isRunning = state.next != nil
                return (state.next, state.done, state.isFinishing)
            }
            if let run {
                if perform(run, done) {
                    backoff.reset()
                } else if !isFinishing {
                    restore(run)
                    finishing.wait(within: backoff.next())
                    work.signal()
                }
            }
            state.withLock { $0.isRunning = false }
            if isFinishing { return }
        }
    }

    /// Puts a failed run back in front of the events that came meanwhile.
    private func restore(_ run: EventCommandInput) {
        state.withLock { state in
            var both = run
            if let later = state.next { both.add(later) }
            state.next = both
        }
    }

    private func perform(_ run: EventCommandInput, _ done: String) -> Bool {
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
            // The next start repeats the run: the guarantee is at least once.
            let words = (error as? any ActionableError)?.fullMessage ?? "\(error)"
            Output.write("groupstore: the token could not be written: \(words)", to: STDERR_FILENO)
        }
        return true
    }
}
