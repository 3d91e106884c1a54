import Glibc
import LinuxSystem
import SystemPackage

/// Runs a program for its output.
enum ChildProcess {
    /// Returns all that the program printed until it ended. A program that exceeds the deadline is killed, and its
    /// output until then is returned. `arguments`: the program's name first. Its standard error is discarded.
    static func output(
        _ program: FilePath, _ arguments: [[UInt8]], deadline: Deadline
    ) throws(SystemError) -> [UInt8] {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw SystemError.last("pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        defer { close(ends[0]) }
        let child: pid_t
        do throws(SystemError) {
            var spawned = SpawnedProgram(program, arguments)
            (spawned.input, spawned.output, spawned.errors) = (.null, .descriptor(ends[1]), .null)
            child = try spawned.start()
            close(ends[1])
        } catch {
            close(ends[1])
            throw error
        }
        let bytes = read(ends[0], deadline)
        // A program that prints more than any answer needs would block on the full pipe.
        if bytes.count > maximumBytes { kill(child, SIGKILL) }
        end(child, deadline)
        return bytes
    }

    private static let maximumBytes = 64 << 20

    /// Waits until the program ends, and kills it at the deadline.
    private static func end(_ child: pid_t, _ deadline: Deadline) {
        var status: CInt = 0
        while waitpid(child, &status, WNOHANG) == 0 {
            if deadline.hasPassed { kill(child, SIGKILL) }
            LinuxSystem.pause(.milliseconds(1))
        }
    }

    private static func read(_ descriptor: CInt, _ deadline: Deadline) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        var interruptions = Interruptions()
        func mayContinue() -> Bool {
            errno == EINTR && !deadline.hasPassed && interruptions.allowsAnother(at: .now)
        }
        while true {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let timeout = deadline.remaining.map { Int32(clamping: $0.nanoseconds / 1_000_000 + 1) } ?? -1
            let count = poll(&ready, 1, timeout)
            if count < 0, mayContinue() { continue }
            guard count > 0 else { return bytes }
            let length = Glibc.read(descriptor, &buffer, buffer.count)
            if length < 0, mayContinue() { continue }
            guard length > 0 else { return bytes }
            bytes += buffer[..<length]
            if bytes.count > maximumBytes { return bytes }
        }
    }
}
