import Glibc
import StoreRelocation
import Synchronization

/// A relocation that a person or a service manager ends with a signal puts everything back first. A second signal ends the
/// process as it always did: the next run finds what was begun.
enum Interruption {
    private static let isAskedFor = Atomic<Bool>(false)

    static var wasAskedFor: Bool { isAskedFor.load(ordering: .relaxed) }

    /// From now on the first SIGINT, SIGTERM or SIGHUP is noted, unless it is ignored as `nohup` has it; and whoever reads
    /// the output may go away in the middle.
    static func isNotedFromNowOn() {
        // Made now: what makes it at its first use is not for a signal handler.
        _ = wasAskedFor
        for number in [SIGINT, SIGTERM, SIGHUP] {
            var action = sigaction()
            guard sigaction(number, nil, &action) == 0 else { continue }
            let isIgnored = unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
            guard !isIgnored else { continue }
            action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in Interruption.isAskedFor.store(true, ordering: .relaxed) }
            action.sa_flags = CInt(bitPattern: UInt32(SA_RESETHAND))
            sigaction(number, &action, nil)
        }
        _ = signal(SIGPIPE, SIG_IGN)
    }
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
