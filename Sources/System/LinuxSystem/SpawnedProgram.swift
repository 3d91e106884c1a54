import Glibc
import SystemPackage

/// A program to start as a child process, with posix_spawn(3).
///
/// Hand-written because Foundation's `Process` needs all of Foundation, and takes arguments as text, where a path may
/// have any bytes.
package struct SpawnedProgram {
    /// A standard stream of the program.
    package enum Stream {
        /// This process's own.
        case inherited
        /// `/dev/null`.
        case null
        case descriptor(CInt)
    }

    package var program: FilePath
    /// The program's name first.
    package var arguments: [[UInt8]]
    /// `NAME=VALUE` each; nil for this process's own environment.
    package var environment: [[UInt8]]?
    package var input = Stream.inherited
    package var output = Stream.inherited
    package var errors = Stream.inherited
    /// True if the program gets a process group of its own: the terminal's signals don't reach it.
    package var leadsGroup = false

    package init(_ program: FilePath, _ arguments: [[UInt8]]) {
        self.program = program
        self.arguments = arguments
    }

    /// Starts the program. The caller must wait for the process that is returned.
    package func start() throws(SystemError) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (number, stream) in [(STDIN_FILENO, input), (STDOUT_FILENO, output), (STDERR_FILENO, errors)] {
            switch stream {
            case .inherited: break
            case .null:
                let flags = number == STDIN_FILENO ? O_RDONLY : O_WRONLY
                posix_spawn_file_actions_addopen(&actions, number, "/dev/null", flags, 0)
            case .descriptor(let descriptor): posix_spawn_file_actions_adddup2(&actions, descriptor, number)
            }
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // The threads of this process may block signals; the child must not.
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK) | (leadsGroup ? Int16(POSIX_SPAWN_SETPGROUP) : 0))
        var child = pid_t()
        let result = Self.withStrings(arguments) { arguments in
            program.withPlatformString { path in
                guard let environment else {
                    return posix_spawn(&child, path, &actions, &attributes, arguments, environ)
                }
                return Self.withStrings(environment) {
                    posix_spawn(&child, path, &actions, &attributes, arguments, $0)
                }
            }
        }
        guard result == 0 else { throw SystemError("posix_spawn", Errno(rawValue: result), path: program) }
        return child
    }

    private static func withStrings<Result>(
        _ strings: [[UInt8]], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
    ) -> Result {
        let copies = strings.map { bytes in
            (bytes + [0]).withUnsafeBufferPointer { buffer in
                buffer.withMemoryRebound(to: CChar.self) { $0.baseAddress.flatMap { strdup($0) } }
            }
        }
        defer { for copy in copies { free(copy) } }
        return body(copies + [nil])
    }
}
