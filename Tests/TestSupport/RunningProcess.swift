import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// An unexpected event or a timeout after which a test can't continue.
package struct Unexpected: Error, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}

/// A program that runs beside a test in its own process group. It is killed when the object is released. Confined to
/// one thread.
package final class RunningProcess {
    package enum Source { case output, errors }

    package let pid: pid_t
    private let name: String
    private var input: CInt
    private var output: OutputStream
    private var errors: OutputStream
    private var status: Int32?

    /// Starts a program. `environment` is added to the test's own. A `program` without a slash is searched in `PATH`.
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

    /// Suspends the process and returns once it has stopped. A signal alone gives its threads more time. Throws at the
    /// deadline.
    package func suspend() throws {
        signal(SIGSTOP)
        let deadline = Deadline(after: .ample)
        var raw: CInt = 0
        while waitpid(pid, &raw, WUNTRACED | WNOHANG) != pid {
            guard !deadline.hasPassed else { throw Unexpected("\(name) does not stop\(capturedOutput)") }
            fill(Deadline(after: .milliseconds(2)))
        }
        let isStopped = raw & 0xFF == 0x7F
        if !isStopped { status = Self.exitCode(raw) }
    }

    /// Returns the next line, or nil if there will be none. Throws at the deadline.
    package func line(_ source: Source = .output, within limit: Duration = .ample) throws -> String? {
        let deadline = Deadline(after: limit)
        while true {
            if let line = source == .output ? output.nextLine() : errors.nextLine() {
                return String(decoding: line, as: UTF8.self)
            }
            if source == .output ? output.ended : errors.ended { return nil }
            guard !deadline.hasPassed else {
                throw Unexpected("\(name) wrote no line within \(limit)\(capturedOutput)")
            }
            fill(deadline)
        }
    }

    /// Returns the next line that meets `condition`, and skips those before it.
    @discardableResult
    package func line(
        _ source: Source = .output, within limit: Duration = .ample, where condition: (String) -> Bool
    ) throws -> String {
        let deadline = Deadline(after: limit)
        while let line = try line(source, within: deadline.remaining ?? limit) {
            if condition(line) { return line }
        }
        throw Unexpected("\(name) ended before it wrote the line waited for\(capturedOutput)")
    }

    /// Returns true if the process ends within `limit`.
    package func hasEnded(within limit: Duration) throws -> Bool {
        let deadline = Deadline(after: limit)
        var pause = Duration.milliseconds(2)
        while status == nil {
            var raw: CInt = 0
            let found = waitpid(pid, &raw, WNOHANG)
            if found == pid { status = Self.exitCode(raw) }
            if found < 0, errno != EINTR { throw Errno(rawValue: errno) }
            if status != nil || deadline.hasPassed { break }
            // The end of its pipes ends the wait. They may stay open in its children, so that doesn't prove its end.
            let isSilent = output.ended && errors.ended
            pause = isSilent ? .milliseconds(1) : min(pause * 2, .milliseconds(50))
            fill(Deadline(after: min(deadline.remaining ?? .zero, pause)))
        }
        return status != nil
    }

    /// Waits for its end and returns everything it wrote. Throws at the deadline.
    @discardableResult
    package func wait(within limit: Duration = .ample) throws -> FinishedProcess {
        guard try hasEnded(within: limit), let status else {
            throw Unexpected("\(name) did not end within \(limit)\(capturedOutput)")
        }
        let deadline = Deadline(after: .seconds(5))
        while !(output.ended && errors.ended), !deadline.hasPassed { fill(deadline) }
        return FinishedProcess(status: status, outputBytes: output.bytes, errorBytes: errors.bytes)
    }

    /// Sends SIGKILL to the process or to its whole group, and waits until it is gone.
    package func killAtOnce(group: Bool = false) throws {
        kill(group ? -pid : pid, SIGKILL)
        guard try hasEnded(within: .ample) else {
            throw Unexpected("\(name) survived SIGKILL")
        }
    }

    private var capturedOutput: String {
        let text = String(decoding: (output.bytes + errors.bytes).suffix(2000), as: UTF8.self)
        return "; it wrote: \(text)"
    }

    private func fill(_ deadline: Deadline) {
        var requests = [output, errors].filter { !$0.ended }.map {
            pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0)
        }
        let milliseconds = (deadline.remaining ?? .seconds(1)).nanoseconds / 1_000_000 + 1
        _ = poll(&requests, nfds_t(requests.count), CInt(clamping: milliseconds))
        output.fill()
        errors.fill()
    }

    private static func exitCode(_ raw: CInt) -> Int32 {
        let signal = raw & 0x7F
        return signal == 0 ? (raw >> 8) & 0xFF : 128 + signal
    }
}

/// The status and output of a finished program.
package struct FinishedProcess: Sendable {
    /// The exit code, or 128 plus the signal's number.
    package let status: Int32
    package let outputBytes: [UInt8]
    package let errorBytes: [UInt8]

    package var output: String { String(decoding: outputBytes, as: UTF8.self) }
    package var errors: String { String(decoding: errorBytes, as: UTF8.self) }

    /// The lines of the output, without empty ones. They are found as bytes: a debug build takes seconds for the
    /// characters of a long output.
    package var lines: [String] {
        outputBytes.withUnsafeBytes { rest in
            var (rest, found) = (rest, [String]())
            while let start = rest.baseAddress, !rest.isEmpty {
                let length = memchr(start, 0x0A, rest.count).map { UnsafeRawPointer($0) - start } ?? rest.count
                if length > 0 { found.append(String(decoding: rest[..<length], as: UTF8.self)) }
                rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(length + 1))
            }
            return found
        }
    }
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
