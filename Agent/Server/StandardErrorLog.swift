import Dispatch
import Glibc
import LinuxSystem
import Synchronization

/// The log on its way to standard error. Who reads that may stop reading: then lines are left out, and counted, but nobody
/// who has something to say waits.
package final class StandardErrorLog: TextOutputStream, Sendable {
    private struct State {
        var lines: [String] = []
        var dropped = 0
        var isWriting = false
        var thread: SystemThread?
        var flushed: [DispatchSemaphore] = []
    }

    private let state = Mutex(State())
    private let arrived = DispatchSemaphore(value: 0)
    private let descriptor: CInt
    private let capacity: Int

    /// `descriptor` stays open for as long as the process lives. `capacity`: the lines that wait at most.
    package init(to descriptor: CInt, capacity: Int = 1024) {
        self.descriptor = descriptor
        self.capacity = capacity
    }

    /// Returns at once. The thread that writes is made with the first line, so that it has the signal mask of who logs.
    package func write(_ line: String) {
        let isTaken = state.withLock { state in
            if state.thread == nil { state.thread = try? SystemThread(name: "gs-log") { [self] in work() } }
            guard state.thread != nil, state.lines.count < capacity else {
                state.dropped += 1
                return false
            }
            // Names of tables, programs and files are others' words.
            let isWhole = line.hasSuffix("\n")
            state.lines.append(
                PrintableText(isWhole ? String(line.dropLast()) : line).description + (isWhole ? "\n" : ""))
            return true
        }
        if isTaken { arrived.signal() }
    }

    /// Waits until all lines so far are written; false when that takes too long.
    @discardableResult
    package func flush(within duration: Duration) -> Bool {
        let done = DispatchSemaphore(value: 0)
        let waits = state.withLock { state in
            guard !state.lines.isEmpty || state.isWriting else { return false }
            state.flushed.append(done)
            return true
        }
        return !waits || done.wait(timeout: .now() + .nanoseconds(Int(duration.nanoseconds))) == .success
    }

    // MARK: The thread that writes

    private func work() {
        while true {
            arrived.wait()
            while let text = next() { put(text) }
            let flushed = state.withLock { state in
                state.isWriting = false
                defer { state.flushed = [] }
                return state.flushed
            }
            for done in flushed { done.signal() }
        }
    }

    private func next() -> String? {
        state.withLock { state in
            guard !state.lines.isEmpty || state.dropped > 0 else { return nil }
            state.isWriting = true
            defer {
                state.lines = []
                state.dropped = 0
            }
            let left =
                state.dropped == 0
                ? "" : "groupstore: \(state.dropped) lines of the log were left out: nobody read it\n"
            return state.lines.joined() + left
        }
    }

    /// What can't be written is left out: there is no other place to say so.
    private func put(_ text: String) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count > 0 {
                bytes = bytes.dropFirst(count)
            } else if errno == EAGAIN {
                var one = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                // For as long as it takes: this thread has nothing else to do, and nobody waits for it without a deadline.
                _ = poll(&one, 1, -1)
            } else if errno != EINTR {
                return
            }
        }
    }
}
