import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Something didn't happen in time, or happened otherwise: what a test can't go on after.
package struct Unexpected: Error, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}

/// A program that a test runs beside itself, in a process group of its own; killed when the test lets go of it.
/// One thread's.
package final class RunningProcess {
    package enum Source { case output, errors }

    package let pid: pid_t
    private let name: String
    private var input: CInt
    private var output: OutputStream
    private var errors: OutputStream
    private var status: Int32?

    /// `environment` is added to the test's own. `program` without a slash is looked for in `PATH`.
    package init(_ program: Word, _ arguments: [Word], environment: [String: String] = [:]) throws {
        name = String(decoding: program.bytes, as: UTF8.self)
        let child = try Spawn.start(program, arguments, environment)
        pid = child.pid
        input = child.input
        output = OutputStream(child.output)
        errors = OutputStream(child.errors)
    }

    deinit {
        if status == nil {
            kill(-pid, SIGKILL)
            var ignored: CInt = 0
            while waitpid(pid, &ignored, 0) < 0, errno == EINTR {}
        }
        closeInput()
        output.close()
        errors.close()
    }

    /// Writes a line to its standard input.
    package func send(_ line: Word) {
        let bytes = line.bytes + [0x0A]
        var done = 0
        while done < bytes.count {
            let count = bytes[done...].withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return }
            done += count
        }
    }

    package func closeInput() {
        if input >= 0 { close(input) }
        input = -1
    }

    package func signal(_ number: CInt) { kill(pid, number) }

    /// Returns when it stands still: a signal alone leaves its threads some time.
    /// Throws at the deadline.
    package func suspend() throws {
        signal(SIGSTOP)
        let deadline = Deadline(after: .ample)
        var raw: CInt = 0
        while waitpid(pid, &raw, WUNTRACED | WNOHANG) != pid {
            guard !deadline.hasPassed else { throw Unexpected("\(name) does not stand still\(heard)") }
            fill(Deadline(after: .milliseconds(2)))
        }
        let isStopped = raw & 0xFF == 0x7F
        if !isStopped { status = Self.exitCode(raw) }
    }

    /// The next line; nil when it will write no more. Throws at the deadline.
    package func line(_ source: Source = .output, within limit: Duration = .ample) throws -> String? {
        let deadline = Deadline(after: limit)
        while true {
            if let line = source == .output ? output.nextLine() : errors.nextLine() {
                return String(decoding: line, as: UTF8.self)
            }
            if source == .output ? output.ended : errors.ended { return nil }
            guard !deadline.hasPassed else {
                throw Unexpected("\(name) wrote no line within \(limit)\(heard)")
            }
            fill(deadline)
        }
    }

    /// The next line that `condition` holds for, those before it left out.
    @discardableResult
    package func line(
        _ source: Source = .output, within limit: Duration = .ample, where condition: (String) -> Bool
    ) throws -> String {
        let deadline = Deadline(after: limit)
        while let line = try line(source, within: deadline.remaining ?? limit) {
            if condition(line) { return line }
        }
        throw Unexpected("\(name) ended before it wrote the line waited for\(heard)")
    }

    /// Whether it ends within `limit`.
    package func hasEnded(within limit: Duration) throws -> Bool {
        let deadline = Deadline(after: limit)
        while status == nil {
            var raw: CInt = 0
            let found = waitpid(pid, &raw, WNOHANG)
            if found == pid { status = Self.exitCode(raw) }
            if found < 0, errno != EINTR { throw Errno(rawValue: errno) }
            if status != nil || deadline.hasPassed { break }
            // Its pipes may stay open in its children, so that the end of file is no sign of its end.
            fill(Deadline(after: min(deadline.remaining ?? .zero, .milliseconds(2))))
        }
        return status != nil
    }

    /// Waits for its end and gives everything it wrote. Throws at the deadline.
    @discardableResult
    package func wait(within limit: Duration = .ample) throws -> FinishedProcess {
        guard try hasEnded(within: limit), let status else {
            throw Unexpected("\(name) did not end within \(limit)\(heard)")
        }
        let deadline = Deadline(after: .seconds(5))
        while !(output.ended && errors.ended), !deadline.hasPassed { fill(deadline) }
        return FinishedProcess(status: status, outputBytes: output.bytes, errorBytes: errors.bytes)
    }

    /// kill -9, to the process alone or with all of its group, and waits until it is gone.
    package func killAtOnce(group: Bool = false) throws {
        kill(group ? -pid : pid, SIGKILL)
        guard try hasEnded(within: .ample) else {
            throw Unexpected("\(name) survived SIGKILL")
        }
    }

    private var heard: String {
        let said = String(decoding: (output.bytes + errors.bytes).suffix(2000), as: UTF8.self)
        return "; it wrote: \(said)"
    }

    private func fill(_ deadline: Deadline) {
        var waits = [output, errors].filter { !$0.ended }.map {
            pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0)
        }
        let milliseconds = (deadline.remaining ?? .seconds(1)).nanoseconds / 1_000_000 + 1
        _ = poll(&waits, nfds_t(waits.count), CInt(clamping: milliseconds))
        output.fill()
        errors.fill()
    }

    private static func exitCode(_ raw: CInt) -> Int32 {
        let signal = raw & 0x7F
        return signal == 0 ? (raw >> 8) & 0xFF : 128 + signal
    }
}

/// How a program ended, and what it said.
package struct FinishedProcess: Sendable {
    /// The exit code, or 128 and the signal's number.
    package let status: Int32
    package let outputBytes: [UInt8]
    package let errorBytes: [UInt8]

    package var output: String { String(decoding: outputBytes, as: UTF8.self) }
    package var errors: String { String(decoding: errorBytes, as: UTF8.self) }
    package var lines: [String] { output.split(separator: "\n").map(String.init) }
}

/// Runs a program to its end.
@discardableResult
package func run(
    _ program: Word, _ arguments: [Word], environment: [String: String] = [:], within limit: Duration = .ample
) throws -> FinishedProcess {
    let process = try RunningProcess(program, arguments, environment: environment)
    process.closeInput()
    return try process.wait(within: limit)
}
