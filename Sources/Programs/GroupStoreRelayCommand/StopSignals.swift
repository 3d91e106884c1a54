import CLinux
import CommandSupport
import Glibc
import LinuxSystem
import StoreRelay
import Synchronization

/// SIGTERM, SIGINT and SIGHUP end a program in an orderly way; a second one ends it at once. SIGPIPE is ignored: a
/// broker or a reader of the output may go away.
final class StopSignals: Sendable {
    private static let exitCode = Atomic<Int32>(0)
    let stop = RelayStop()

    /// Blocks the signals. Call it before any other thread exists, the broker's library's too. Throws `SystemError`.
    init() throws {
        _ = signal(SIGPIPE, SIG_IGN)
        let source = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let raw = source.raw
        let holder = SourceHolder(source)
        _ = try SystemThread(name: "gs-signals") { [stop] in
            var hasRequested = false
            while true {
                _ = gs_wait_readable(raw, raw, -1)
                while let number = holder.source.next() {
                    // Whatever is under way is a transaction: it is done or undone.
                    if hasRequested { _exit(128 + number) }
                    hasRequested = true
                    if number == SIGINT { Self.exitCode.store(ExitStatus.interrupted.rawValue, ordering: .relaxed) }
                    stop.request()
                }
            }
        }
    }

    private final class SourceHolder: Sendable {
        let source: SignalSource
        init(_ source: consuming SignalSource) { self.source = source }
    }

    /// The exit code of a program that a signal has ended: 0, or 130 for Ctrl-C.
    static var endCode: Int32 { exitCode.load(ordering: .relaxed) }
}
