import Synchronization

/// Notices calls that don't end although they have a time limit of their own, and so must not be silent for good.
///
/// Such a limit can fail: a library may measure it by the clock of the day, which is set back by an hour, or miss the
/// signal that it waits for. A call is overdue half a minute after its limit. Another thread makes it end then. If that
/// doesn't help within another half minute, the program gives up, and its unit starts it again.
///
/// Time is counted in the rests of a thread: it stands still while the process or the machine is stopped, and runs
/// slower than the clock where a processor is hard to get.
package final class Watchdog: Sendable {
    private struct Call {
        let name: StaticString
        let limit: Duration
        /// The rests until it is overdue, or until the program gives up.
        var rests: Int
        var interrupt: (@Sendable () -> Void)?
        var isOverdue = false
    }

    private struct State {
        var calls: [Int: Call] = [:]
        var last = 0
        var isOver = false
    }

    /// What the thread needs: it must not keep the watchdog.
    private final class Shared: Sendable {
        let state = Mutex(State())
        let rest: Duration
        let grace: Duration
        let giveUp: @Sendable (_ call: StaticString, _ limit: Duration) -> Void

        init(
            rest: Duration, grace: Duration,
            giveUp: @escaping @Sendable (_ call: StaticString, _ limit: Duration) -> Void
        ) {
            self.rest = rest
            self.grace = grace
            self.giveUp = giveUp
        }

        func rests(in duration: Duration) -> Int { Int(min((duration / rest).rounded(.up), 1e9)) + 1 }

        func run() {
            while true {
                pause(rest)
                guard count() else { return }
            }
        }

        /// Counts a rest. Returns false once the watchdog is gone.
        private func count() -> Bool {
            var (isOver, overdue, lost) = (false, [Call](), [Call]())
            state.withLock { state in
                isOver = state.isOver
                for (number, var call) in state.calls {
                    call.rests -= 1
                    if call.rests == 0 {
                        if call.isOverdue { lost.append(call) } else { overdue.append(call) }
                        call.isOverdue = true
                        call.rests = rests(in: grace)
                    }
                    state.calls[number] = call
                }
            }
            if isOver { return false }
            for call in lost { giveUp(call.name, call.limit) }
            for call in overdue {
                // Not by this thread: what makes a call end may not end either.
                if let interrupt = call.interrupt { _ = try? SystemThread(name: "gs-interrupt") { interrupt() } }
            }
            return true
        }
    }

    private let shared: Shared

    /// Throws `SystemError` if no thread can be created.
    ///
    /// - Parameters:
    ///   - rest: The unit of time.
    ///   - grace: The time after a limit, and again after the attempt to make the call end.
    ///   - giveUp: Ends the program. If it returns, it is called again after another `grace`.
    package init(
        rest: Duration = .seconds(5), grace: Duration = .seconds(30),
        giveUp: @escaping @Sendable (_ call: StaticString, _ limit: Duration) -> Void
    ) throws(SystemError) {
        let shared = Shared(rest: rest, grace: grace, giveUp: giveUp)
        _ = try SystemThread(name: "gs-watchdog") { shared.run() }
        self.shared = shared
    }

    deinit { shared.state.withLock { $0.isOver = true } }

    /// Performs a call that has a limit of its own. Throws what the call throws.
    ///
    /// - Parameter interrupt: Makes an overdue call end. It may block.
    package func watch<Success, Failure>(
        _ name: StaticString, limit: Duration, interrupt: (@Sendable () -> Void)? = nil,
        _ body: () throws(Failure) -> Success
    ) throws(Failure) -> Success {
        let call = Call(name: name, limit: limit, rests: shared.rests(in: limit + shared.grace), interrupt: interrupt)
        let number = shared.state.withLock { state in
            state.last += 1
            state.calls[state.last] = call
            return state.last
        }
        defer { _ = shared.state.withLock { $0.calls.removeValue(forKey: number) } }
        return try body()
    }
}

extension Watchdog? {
    /// Performs a call, with or without a watchdog.
    package func watch<Success, Failure>(
        _ name: StaticString, limit: Duration, interrupt: (@Sendable () -> Void)? = nil,
        _ body: () throws(Failure) -> Success
    ) throws(Failure) -> Success {
        guard let self else { return try body() }
        return try self.watch(name, limit: limit, interrupt: interrupt, body)
    }
}
