import Glibc
import LinuxSystem
import SQLiteFormat

/// The check whether anything contradicts that the database which a store and its branches share is the last state that
/// all of them had.
///
/// A log begins with the state that the database had when the log was created. The kernel sets the time of a file's
/// last change (`ctime`) and that of its creation. If the database's last change is before the creation of each log,
/// nobody has written to it since, neither by a checkpoint nor otherwise.
///
/// That is no proof: SQLite's format ties no log to a state of the database, so a log that was put back with its index
/// may follow on another one. A base is used only if the user asks for it, and refused if times, logs or indexes
/// contradict it or each other.
package struct BaseContradiction {
    struct Database {
        /// Nil if the file system records none.
        let birth: Int64?
        /// The time of the last change of any kind.
        let changed: Int64
        /// Nil if it can't be read.
        let header: DatabaseHeader?
    }

    struct Log {
        let birth: Int64?
        /// The time of the last change, or of the last write if that is earlier, as in a copy that keeps it.
        let changed: Int64
        /// True if the log was begun anew at least once.
        let isRestarted: Bool
        /// True if a checkpoint has copied, or may have copied, frames of it to the database.
        let isCheckpointed: Bool
        /// Nil for a log without a commit, which adds nothing to the database.
        let origin: WriteAheadLog.Origin?
        /// What shows that the log is another database's; nil if nothing does.
        let mismatch: LogMismatch?
        /// The creation time of the log's own index; nil without one.
        let indexBirth: Int64?
    }

    /// The least time from the database's last change to the creation of a log. Clocks are set back by a second where a
    /// leap second is inserted, and file times are those of the kernel's last tick.
    package static let margin = Duration.seconds(2)

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

    /// A phrase on what contradicts the database as a base; nil if nothing does.
    var reason: String? {
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
            return "a log was checkpointed, or read after its program had ended"
        }
        let written = logs.filter { $0.origin != nil }
        guard written.allSatisfy(isKept) else {
            return "a log has no index of its own, or was written in one go with it, as if both were put back"
        }
        let origins = written.compactMap(\.origin)
        // In its first life, a log has one pair of salts.
        guard Set(origins.flatMap(\.salts)).count == origins.count, origins.allSatisfy({ $0.salts.count == 1 }),
            Set(origins.map(\.firstCommit)).count == origins.count
        else { return "two logs have the same commits, or one has those of another" }
        // In WAL mode too, a connection that writes page 1 writes the counter that it has read there plus one (pager.c,
        // `pager_write_changecounter`), in exclusive locking mode and after a rollback as well.
        // A log without page 1 shows nothing.
        guard let header = database.header, header.versionValidFor == header.changeCounter,
            origins.compactMap(\.header).allSatisfy({
                $0.changeCounter == header.changeCounter &+ 1 && $0.versionValidFor == $0.changeCounter
            }), written.allSatisfy({ $0.mismatch == nil })
        else { return "a log follows on another state of the database" }
        return nil
    }

    /// True if a program has made a log and its index, in this order, and has written commits for some time. Copies are
    /// written once each.
    private func isKept(_ log: Log) -> Bool {
        guard let birth = log.birth, let indexBirth = log.indexBirth else { return false }
        return birth <= indexBirth && log.changed >= indexBirth + Int64(margin.nanoseconds) / 1000
    }
}
