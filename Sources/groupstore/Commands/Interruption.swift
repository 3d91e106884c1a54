import Glibc
import CLinux
import StoreRelocation
import Synchronization

/// A relocation that a person or a service manager ends with a signal puts everything back first. A second signal ends the
/// process as it always did: the next run finds what was begun.
enum Interruption {
    private static let isAskedFor = Atomic<Bool>(false)
    /// Whether it is said on standard error at once, whatever the process is busy with.
    private static let isAnnounced = Atomic<Bool>(false)
    private static let isTerminal = isatty(STDERR_FILENO) == 1

    static var wasAskedFor: Bool { isAskedFor.load(ordering: .relaxed) }

    /// Can be read from when it was asked for: whoever waits for something else waits for that, too. -1 where there is none.
    static let bell = gs_eventfd()

    /// From now on the first SIGINT, SIGTERM or SIGHUP is noted, unless it is ignored as `nohup` has it; and whoever reads
    /// the output may go away in the middle, unless that `endsWithOutput`. With `announcing`, a line says that it was noted.
    static func isNotedFromNowOn(endsWithOutput: Bool = false, announcing: Bool = false) {
        // Made now: what makes them at their first use is not for a signal handler.
        _ = (wasAskedFor, bell, isTerminal)
        isAnnounced.store(announcing, ordering: .relaxed)
        for number in [SIGINT, SIGTERM, SIGHUP] {
            var action = sigaction()
            guard sigaction(number, nil, &action) == 0 else { continue }
            let isIgnored = unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
            guard !isIgnored else { continue }
            action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in Interruption.note() }
            action.sa_flags = CInt(bitPattern: UInt32(SA_RESETHAND))
            sigaction(number, &action, nil)
        }
        if !endsWithOutput { _ = signal(SIGPIPE, SIG_IGN) }
    }

    /// In a signal's handler.
    private static func note() {
        isAskedFor.store(true, ordering: .relaxed)
        var one: UInt64 = 1
        let error = errno
        _ = write(bell, &one, 8)
        if isAnnounced.load(ordering: .relaxed) {
            // In place of a progress bar.
            if isTerminal { say("\r\u{1B}[K") }
            say("stopping\n")
        }
        errno = error
    }
}

extension Interruption {
    /// As a signal's handler may.
    private static func say(_ text: StaticString) { _ = write(STDERR_FILENO, text.utf8Start, text.utf8CodeUnitCount) }
}

extension RelocationFailure {
    /// Said as what it is, where a signal has ended the waiting.
    var markedIfInterrupted: RelocationFailure {
        guard code == "cancelled", Interruption.wasAskedFor else { return self }
        var failure = self
        failure.kind = .interrupted
        return failure
    }
}
