import Glibc
import SystemPackage

/// A program that has ended, and what it printed.
package struct FinishedProgram: Sendable {
    /// The exit code; 128 and the signal's number if a signal ended it.
    package let status: Int32
    package let output: [UInt8]
    package let errors: [UInt8]
    /// True if it was killed at the deadline.
    package let isLate: Bool
    /// True if it was ended because this process was interrupted.
    package let isCancelled: Bool
}

extension SpawnedProgram {
    /// Runs the program until it ends, without input, and kills it at the deadline. Once `isCancelled`, it gets
    /// SIGTERM, and a second to end.
    ///
    /// It prints into files: a service that it starts may keep a pipe open for ever.
    ///
    /// - Parameter limit: The number of bytes after which its output, or its errors, are cut off.
    package func run(
        until deadline: Deadline, limit: Int, isCancelled: () -> Bool = { false }
    ) throws(SystemError) -> FinishedProgram {
        guard let output = tmpfile() else { throw SystemError.last("tmpfile") }
        defer { fclose(output) }
        guard let errors = tmpfile() else { throw SystemError.last("tmpfile") }
        defer { fclose(errors) }
        var program = self
        (program.input, program.output) = (.null, .descriptor(fileno(output)))
        program.errors = .descriptor(fileno(errors))
        let child = try program.start()
        var (status, isLate, wasCancelled, deadline) = (CInt(0), false, false, deadline)
        var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
        while true {
            let ended = waitpid(child, &status, WNOHANG)
            if ended == child { break }
            guard ended == 0 || errno == EINTR else { throw SystemError.last("waitpid") }
            if deadline.hasPassed, !isLate {
                kill(child, SIGKILL)
                isLate = true
            } else if !wasCancelled, !isLate, isCancelled() {
                kill(child, SIGTERM)
                (wasCancelled, deadline) = (true, Deadline(after: .seconds(1)))
            }
            LinuxSystem.pause(backoff.next())
        }
        let signal = status & 0x7F
        return FinishedProgram(
            status: signal == 0 ? (status >> 8) & 0xFF : 128 + signal, output: try Self.content(of: output, limit),
            errors: try Self.content(of: errors, limit), isLate: isLate, isCancelled: wasCancelled)
    }

    private static func content(of file: UnsafeMutablePointer<FILE>, _ limit: Int) throws(SystemError) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while bytes.count < limit {
            let count = try retrying("pread") { pread(fileno(file), &buffer, buffer.count, off_t(bytes.count)) }
            guard count > 0 else { break }
            bytes += buffer[..<count]
        }
        return Array(bytes.prefix(limit))
    }
}
