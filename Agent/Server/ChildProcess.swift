import Glibc
import LinuxSystem
import SystemPackage

/// Runs a program for its output.
///
/// Hand-written because Foundation's `Process` needs all of Foundation, and takes arguments as text, where a path may
/// have any bytes.
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
            child = try spawn(program, arguments, output: ends[1])
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

    private static func spawn(
        _ program: FilePath, _ arguments: [[UInt8]], output: CInt
    ) throws(SystemError) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, output, 1)
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // The agent's threads block signals; the child must not.
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        let words = arguments.map { word in
            (word + [0]).withUnsafeBufferPointer { buffer in
                buffer.withMemoryRebound(to: CChar.self) { $0.baseAddress.flatMap { strdup($0) } }
            }
        }
        defer { for word in words { free(word) } }
        var child = pid_t()
        let result = program.withPlatformString {
            posix_spawn(&child, $0, &actions, &attributes, words + [nil], environ)
        }
        guard result == 0 else { throw SystemError("posix_spawn", Errno(rawValue: result), path: program) }
        return child
    }

    private static func read(_ descriptor: CInt, _ deadline: Deadline) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let timeout = deadline.remaining.map { Int32(clamping: $0.nanoseconds / 1_000_000 + 1) } ?? -1
            let count = poll(&ready, 1, timeout)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return bytes }
            let length = Glibc.read(descriptor, &buffer, buffer.count)
            if length < 0, errno == EINTR { continue }
            guard length > 0 else { return bytes }
            bytes += buffer[..<length]
            if bytes.count > maximumBytes { return bytes }
        }
    }
}
