import Glibc
import LinuxSystem

/// The decision whether the database that a store and its branches share is the last state that all of them had.
///
/// A log begins with the state that the database had when the log was created. The kernel sets the time of a file's
/// last change (`ctime`) and that of its creation, and no program can. If the database's last change is before the
/// creation of each log, nobody has written to it since, neither by a checkpoint nor otherwise: what is in the database
/// now is what each log's commits follow on.
///
/// The times prove nothing if a clock was set back in between. So they must agree with each other, with the present
/// time, and with what the logs and their indexes say of checkpoints. In doubt there is no base: a wrong one would lose
/// rows.
struct SplitProof {
    struct Database {
        /// Nil if the file system records none.
        let birth: Int64?
        /// The time of the last change of any kind.
        let changed: Int64
    }

    struct Log {
        let birth: Int64?
        let changed: Int64
        /// True if the log was begun anew at least once.
        let isRestarted: Bool
        /// True if a checkpoint has copied, or may have copied, frames of it to the database.
        let isCheckpointed: Bool
    }

    /// The least time from the database's last change to the creation of a log. Clocks are set back by a second where a
    /// leap second is inserted, and file times are those of the kernel's last tick.
    static let margin = Duration.seconds(2)

    let database: Database
    let logs: [Log]
    /// The present time.
    let now: Int64
    var margin = Self.margin

    /// The time by the kernel's clock, in nanoseconds since 1970.
    static var presentTime: Int64 {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec)
    }

    /// A phrase on what keeps the database from being a proved base; nil if it is one.
    var obstacle: String? {
        guard let birth = database.birth, logs.allSatisfy({ $0.birth != nil }) else {
            return "the file system records no creation times"
        }
        let births = logs.compactMap(\.birth)
        let times = [birth, database.changed] + births + logs.map(\.changed)
        guard birth <= database.changed, times.allSatisfy({ $0 > 0 && $0 <= now }),
            zip(births, logs).allSatisfy({ $0 <= $1.changed })
        else { return "the files' times contradict each other, as after a clock was set back" }
        guard births.allSatisfy({ birth < $0 && database.changed < $0 - Int64(margin.nanoseconds) }) else {
            return "the database was written to after a log was created, or shortly before"
        }
        guard !logs.contains(where: { $0.isRestarted || $0.isCheckpointed }) else {
            return "a log was checkpointed"
        }
        return nil
    }
}
