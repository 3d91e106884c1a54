import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Runs a shell command at each event, one run at a time on a thread of its own; events during a run cause one more.
final class EventCommand: Sendable {
    private struct Run: Sendable {
        let event: String
        let token: String
        let store: [UInt8]
        let path: [UInt8]
    }

    private struct State {
        var next: Run?
        var isFinishing = false
    }

    private let command: String
    private let state = Mutex(State())
    private let work = DispatchSemaphore(value: 0)
    private let thread = Mutex<SystemThread?>(nil)

    init(_ command: String) { self.command = command }

    /// Returns at once.
    func run(_ event: FeedEvent, _ feed: StoreFeed) throws {
        let run = Run(
            event: event.type, token: event.token ?? feed.token, store: feed.address.bytes, path: feed.path.bytes)
        state.withLock { state in
            // A reset outweighs what came after it: the command must not take what it knows for current.
            let wasReset = state.next?.event == "reset"
            state.next = Run(
                event: wasReset ? "reset" : run.event, token: run.token, store: run.store, path: run.path)
        }
        try startThread()
        work.signal()
    }

    private func startThread() throws {
        try thread.withLock { thread in
            if thread == nil { thread = try SystemThread(name: "gs-exec") { [self] in loop() } }
        }
    }

    /// Lets the last run come to its end.
    func finish() {
        state.withLock { $0.isFinishing = true }
        work.signal()
        // The command is the user's; how long it takes is too.
        _ = thread.withLock { $0.take() }?.join(within: .seconds(86_400))
    }

    private func loop() {
        while true {
            work.wait()
            let (run, isFinishing) = state.withLock { state in
                defer { state.next = nil }
                return (state.next, state.isFinishing)
            }
            if let run { perform(run) }
            if isFinishing { return }
        }
    }

    private func perform(_ run: Run) {
        var environment: [[UInt8]] = Self.inherited
        for (name, value) in [
            ("EVENT", Array(run.event.utf8)), ("TOKEN", Array(run.token.utf8)), ("STORE", run.store),
            ("PATH", run.path),
        ] {
            environment.append(Array("GROUPSTORE_\(name)=".utf8) + value)
        }
        let arguments = ["/bin/sh", "-c", command].map { Array($0.utf8) }
        let status = Self.spawn(arguments, environment)
        if status != 0 { Output.write("groupstore: \(command): exit status \(status)", to: STDERR_FILENO) }
    }

    private static let inherited: [[UInt8]] = {
        var found: [[UInt8]] = []
        var entry = environ
        while let pointer = entry.pointee {
            let length = strlen(pointer)
            found.append(
                pointer.withMemoryRebound(to: UInt8.self, capacity: length) {
                    Array(UnsafeBufferPointer(start: $0, count: length))
                })
            entry += 1
        }
        return found
    }()

    /// The exit status, 128 and the signal's number when one ended it, or 127 when it could not be started.
    private static func spawn(_ arguments: [[UInt8]], _ environment: [[UInt8]]) -> Int32 {
        var pid = pid_t()
        let result = withStrings(arguments) { arguments in
            withStrings(environment) { posix_spawn(&pid, "/bin/sh", nil, nil, arguments, $0) }
        }
        guard result == 0 else { return 127 }
        var status: CInt = 0
        while waitpid(pid, &status, 0) < 0 {
            if errno != EINTR { return 127 }
        }
        return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
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
