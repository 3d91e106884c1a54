import Glibc
import CLinux
import LinuxSystem
import StoreRelocation
import Synchronization

/// Interruption by SIGINT, SIGTERM or SIGHUP. A relocation puts everything back before it ends. A second signal ends
/// the process at once; the next run finds what was begun.
enum Interruption {
    private static let requestFlag = Atomic<Bool>(false)
    /// True if the signal handler reports the interruption on standard error at once, whatever the process is doing.
    private static let isAnnounced = Atomic<Bool>(false)
    private static let isTerminal = isatty(STDERR_FILENO) == 1

    static var isRequested: Bool { requestFlag.load(ordering: .relaxed) }

    /// An event descriptor that becomes readable on interruption, for waits in poll(2). -1 if there is none.
    static let descriptor = gs_eventfd()

    /// Installs handlers for the first SIGINT, SIGTERM and SIGHUP, except those that are ignored, as under `nohup`.
    /// Also ignores SIGPIPE, so that a reader of the output may go away, unless `endsWithOutput`. With `announcing`,
    /// the handler reports the interruption.
    static func installHandlers(endsWithOutput: Bool = false, announcing: Bool = false) {
        // Initialized now, because a signal handler must not run lazy initializers.
        _ = (isRequested, descriptor, isTerminal)
        isAnnounced.store(announcing, ordering: .relaxed)
        for number in [SIGINT, SIGTERM, SIGHUP] {
            var action = sigaction()
            guard sigaction(number, nil, &action) == 0 else { continue }
            let isIgnored = unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
            guard !isIgnored else { continue }
            action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in Interruption.handle() }
            action.sa_flags = CInt(bitPattern: UInt32(SA_RESETHAND))
            sigaction(number, &action, nil)
        }
        if !endsWithOutput { _ = signal(SIGPIPE, SIG_IGN) }
    }

    /// Ends this process like a signal once nobody reads its output any more. Without output, it would not notice.
    static func requestAtEndOfReader() throws {
        _ = try SystemThread(name: "gs-output") {
            var output = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
            _ = try? retrying("poll") { poll(&output, 1, -1) }
            guard output.revents & Int16(POLLERR) != 0 else { return }
            // A program that writes would get it, unless it is ignored.
            kill(getpid(), SIGPIPE)
            handle()
        }
    }

    /// Handles a signal.
    private static func handle() {
        requestFlag.store(true, ordering: .relaxed)
        var one: UInt64 = 1
        let error = errno
        _ = write(descriptor, &one, 8)
        if isAnnounced.load(ordering: .relaxed) {
            // Replaces a progress bar.
            if isTerminal { say("\r\u{1B}[K") }
            say("stopping\n")
        }
        errno = error
    }
}

extension Interruption {
    /// Writes with a function that is allowed in a signal handler.
    private static func say(_ text: StaticString) { _ = write(STDERR_FILENO, text.utf8Start, text.utf8CodeUnitCount) }
}

extension RelocationFailure {
    /// The failure, reported as an interruption if a signal has ended the wait.
    var markedIfInterrupted: RelocationFailure {
        guard code == "cancelled", Interruption.isRequested else { return self }
        var failure = self
        failure.kind = .interrupted
        return failure
    }
}
