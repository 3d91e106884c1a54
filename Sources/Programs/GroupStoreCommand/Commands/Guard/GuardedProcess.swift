import Glibc
import LinuxSystem
import Synchronization

/// The command that `guard` runs, in the place of this process: it has the terminal and gets the signals.
enum GuardedProcess {
    /// The process, or 0.
    private static let child = Atomic<pid_t>(0)

    /// Runs a command to its end. Returns its exit status, 128 plus the signal's number if a signal ended it, or 127 if
    /// it could not be started.
    ///
    /// - Parameter output: Where its standard output goes.
    ///
    /// Lease breaks' signals are handled from then on.
    static func run(_ command: [[UInt8]], output: SpawnedProgram.Stream) -> Int32 {
        // The terminal sends these to the command too. What it does about them decides.
        // A handler, unlike an ignored signal, isn't inherited.
        for number in [SIGINT, SIGQUIT, SIGIO] { _ = signal(number) { _ in } }
        for number in [SIGTERM, SIGHUP] {
            _ = signal(number) { number in
                let pid = GuardedProcess.child.load(ordering: .relaxed)
                if pid > 0 { kill(pid, number) }
            }
        }
        // The shell looks for the program, and says why it can't be run.
        let words = ["/bin/sh", "-c", "exec \"$@\"", "sh"].map { Array($0.utf8) } + command
        var shell = SpawnedProgram("/bin/sh", words)
        shell.output = output
        guard let pid = try? shell.start() else { return 127 }
        child.store(pid, ordering: .relaxed)
        defer { child.store(0, ordering: .relaxed) }
        var status: CInt = 0
        guard (try? retrying("waitpid", { waitpid(pid, &status, 0) })) != nil else { return 127 }
        return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
    }
}
