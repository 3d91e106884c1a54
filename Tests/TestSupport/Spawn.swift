import Glibc
import Synchronization
import SystemPackage

/// Starts a child with pipes for its three standard descriptors.
enum Spawn {
    struct Child {
        let pid: pid_t
        let input: CInt
        let output: CInt
        let errors: CInt
    }

    /// Swift's Glibc module has no pipe2. Between pipe and fcntl no other child may start, or it would keep the pipe
    /// open.
    private static let pipeCreation = Mutex(())

    static func start(_ program: Word, _ arguments: [Word], _ environment: [String: String]) throws -> Child {
        try pipeCreation.withLock { _ in
            // Writing to a child that has ended must not end the test.
            signal(SIGPIPE, SIG_IGN)
            let pipes = try (0..<3).map { _ in try closeOnExecPipe() }
            let child = Child(
                pid: try spawn(program, arguments, environment, [pipes[0].read, pipes[1].write, pipes[2].write]),
                input: pipes[0].write, output: pipes[1].read, errors: pipes[2].read)
            close(pipes[0].read)
            close(pipes[1].write)
            close(pipes[2].write)
            return child
        }
    }

    private static func closeOnExecPipe() throws -> (read: CInt, write: CInt) {
        var ends: [CInt] = [0, 0]
        guard pipe(&ends) == 0 else { throw Errno(rawValue: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    private static func spawn(
        _ program: Word, _ arguments: [Word], _ environment: [String: String], _ standard: [CInt]
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (number, descriptor) in standard.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, descriptor, CInt(number))
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigaddset(&signals, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

        let words = CStrings([program] + arguments)
        let variables = CStrings(merged(environment))
        var pid = pid_t()
        guard let file = words.pointers[0] else { throw Errno.noMemory }
        let error = posix_spawnp(&pid, file, &actions, &attributes, words.pointers, variables.pointers)
        guard error == 0 else { throw Errno(rawValue: error) }
        return pid
    }

    private static func merged(_ environment: [String: String]) -> [Word] {
        var result: [Word] = []
        var variable = environ
        while let entry = variable.pointee {
            let bytes = UnsafeRawBufferPointer(start: entry, count: strlen(entry))
            let name = strchr(entry, CInt(UInt8(ascii: "="))).map { bytes[..<($0 - entry)] } ?? bytes[...]
            if environment[String(decoding: name, as: UTF8.self)] == nil { result.append(Word(bytes: Array(bytes))) }
            variable += 1
        }
        return result + environment.map { Word("\($0.key)=\($0.value)") }
    }
}

/// An array of C strings that ends with a null pointer.
private final class CStrings {
    let pointers: [UnsafeMutablePointer<CChar>?]

    init(_ words: [Word]) {
        pointers =
            words.map { word in
                (word.bytes + [0]).withUnsafeBytes { bytes in
                    bytes.baseAddress.flatMap { strdup($0.assumingMemoryBound(to: CChar.self)) }
                }
            } + [nil]
    }

    deinit { for pointer in pointers { free(pointer) } }
}
