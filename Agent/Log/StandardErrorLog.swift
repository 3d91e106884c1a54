import Glibc
import LinuxSystem
import Synchronization

/// Writes the log to standard error. If its reader stops reading, lines are dropped and counted, and no logging thread
/// waits.
package final class StandardErrorLog: TextOutputStream, Sendable {
    private struct State {
        var lines: [String] = []
        var dropped = 0
        var isWriting = false
        var thread: SystemThread?
        var flushed: [MonotonicSemaphore] = []
    }

    private let state = Mutex(State())
    private let arrived = MonotonicSemaphore()
    private let descriptor: CInt
    private let capacity: Int
    /// The format of the lines that are written, for this object's own one.
    private let format: LogFormat

    /// `descriptor` stays open for as long as the process lives. `capacity`: the maximum number of waiting lines.
    package init(to descriptor: CInt, capacity: Int = 1024, format: LogFormat = .text) {
        self.descriptor = descriptor
        self.capacity = capacity
        self.format = format
    }

    /// Queues a line and returns at once. The writing thread starts with the first line, so that it has the signal mask
    /// of the logging thread.
    package func write(_ line: String) {
        let isQueued = state.withLock { state in
            if state.thread == nil { state.thread = try? SystemThread(name: "gs-log") { [self] in work() } }
            guard state.thread != nil, state.lines.count < capacity else {
                state.dropped += 1
                return false
            }
            // Names of tables, programs and files are untrusted text.
            let isWhole = line.hasSuffix("\n")
            state.lines.append(
                PrintableText(isWhole ? String(line.dropLast()) : line).description + (isWhole ? "\n" : ""))
            return true
        }
        if isQueued { arrived.signal() }
    }

    /// Waits until all lines so far are written; false if the deadline passes first.
    @discardableResult
    package func flush(within duration: Duration) -> Bool {
        let done = MonotonicSemaphore()
        let waits = state.withLock { state in
            guard !state.lines.isEmpty || state.isWriting else { return false }
            state.flushed.append(done)
            return true
        }
        return !waits || done.wait(within: duration)
    }

    // MARK: The writing thread

    private func work() {
        while true {
            arrived.wait()
            while let text = next() { writeAll(text) }
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
            let dropped = state.dropped == 0 ? "" : format.droppedLines(state.dropped) + "\n"
            return state.lines.joined() + dropped
        }
    }

    /// Writes the text. Text that can't be written is dropped: there is no other place to report it.
    private func writeAll(_ text: String) {
        var bytes = Array(text.utf8)[...]
        var interruptions = Interruptions()
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count > 0 {
                bytes = bytes.dropFirst(count)
            } else if errno == EAGAIN {
                var one = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                // Without a deadline: this thread has nothing else to do, and nobody waits for it without a deadline.
                _ = poll(&one, 1, -1)
            } else if errno != EINTR || !interruptions.allowsAnother(at: .now) {
                return
            }
        }
    }
}
