import LinuxSystem
import SystemPackage

/// Finds out whether other processes have a store open, and remembers when to ask again.
struct OpenFileProbe {
    enum Answer {
        /// Nobody has it open, or nobody knows: the relocation finds out.
        case closed
        case open
        /// Another agent or relocation probes it already, and notices the close.
        case unknown
    }

    private var probe: FileProbe?
    /// The time to ask again after the answer `unknown`. Until then the answer stands: asking raises events, which wake
    /// the other one, and two that react to each other's events would never rest.
    private(set) var retryAt: ContinuousClock.Instant?
    private var backoff = Backoff(first: .seconds(1), longest: .seconds(30), isRandomized: true)

    /// Keeps the file open while the answer is `open`.
    mutating func ask(_ name: FilePath.Component, in directory: FilePath) -> Answer {
        guard !isPostponed else { return .unknown }
        guard let directory = try? Directory(directory), let status = try? directory.status(name),
            status.kind == .regular
        else {
            end()
            return .closed
        }
        if probe?.identity != status.identity {
            probe = nil
            do throws(SystemError) {
                probe = try FileProbe(name, in: directory)
            } catch {
                end()
                return .closed
            }
        }
        guard let probe else {
            retryAt = .now.advanced(by: backoff.next())
            return .unknown
        }
        guard probe.isOpenElsewhere else {
            end()
            return .closed
        }
        retryAt = nil
        backoff.reset()
        return .open
    }

    /// True while the answer `unknown` stands.
    var isPostponed: Bool { retryAt.map { $0 > .now } ?? false }

    /// Returns true if it is time to ask again, and clears that time.
    mutating func consumeDue() -> Bool {
        guard retryAt != nil, !isPostponed else { return false }
        retryAt = nil
        return true
    }

    mutating func end() { self = OpenFileProbe() }
}
