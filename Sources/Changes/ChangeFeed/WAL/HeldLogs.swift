import Glibc
import LinuxSystem
import SQLiteFormat

/// The logs of a store in WAL mode from when each is made until it is read, also if it has lost its name by then.
///
/// The first program that opens the store makes the log and then the index. The last one that closes it copies the log
/// to the database, and removes the index and then the log. A program such as `sqlite3 FILE "INSERT …"` does all of
/// that within some milliseconds. The kernel queues the events of the names in order, and the database is written only
/// while there is an index, or by something that is no transaction in WAL mode.
///
/// Events have no inode numbers: an event that is read late may find the file of a later one. As each file is opened
/// after its event was read, and held, the last event then finds no file, or one that is held already.
package struct HeldLogs: Sendable {
    /// A log and its index.
    package struct Log: Sendable {
        package let log: WALFile
        package let index: WALIndexFile
        /// True if a program has closed the index while it had its name. If nobody else had it open, the next program
        /// makes it anew from the log (`walIndexRecover`), and its count of commits begins anew.
        package fileprivate(set) var wasLeft = false
    }

    private enum Phase {
        /// There is no log.
        case between
        /// There is a log without an index.
        case made(WALFile)
        case open(Log)
        /// The index has lost its name, and the log will.
        case closing(Log)
    }

    private var phase = Phase.between
    /// Those that have lost their names, in order.
    package private(set) var finished: [Log] = []
    /// The length in bytes of those.
    private var length: Int64 = 0

    /// The last one, which programs may have open; nil if there is none.
    package var current: Log? {
        switch phase {
        case .open(let log), .closing(let log): log
        case .between, .made: nil
        }
    }

    /// True if a transaction may be written to the database now.
    var mayWrite: Bool { if case .open = phase { true } else { false } }

    /// Forgets all logs, and opens the one that there is. Returns false if it isn't known.
    mutating func begin(_ name: StoreName, in directory: Directory) -> Bool {
        self = Self()
        do {
            switch (try WALFile(name.wal, in: directory), try WALIndexFile(name.sharedMemory, in: directory)) {
            case (nil, nil): return true
            case (let log?, let index?):
                phase = .open(Log(log: log, index: index))
                return true
            default: return false
            }
        } catch { return false }
    }

    /// Forgets the first one that has lost its name.
    mutating func drop() {
        guard let log = finished.first else { return }
        length -= (try? log.log.status().size) ?? 0
        finished.removeFirst()
    }

    /// Records an event of the log's name. Returns false if it isn't understood.
    mutating func recordLog(_ mask: UInt32, _ name: StoreName, in directory: Directory) -> Bool {
        switch phase {
        case .between:
            guard mask & UInt32(IN_CREATE) != 0, finished.count < JournalWatch.maximumFinished / 2,
                let log = try? WALFile(name.wal, in: directory), let identity = try? log.status().identity,
                (try? finished.last?.log.status().identity) != identity
            else { return false }
            phase = .made(log)
            return true
        case .closing(let closed):
            guard mask & UInt32(IN_DELETE) != 0, let status = try? closed.log.status(), status.links == 0,
                length + status.size <= JournalWatch.maximumSize
            else { return false }
            (phase, length) = (.between, length + status.size)
            finished.append(closed)
            return true
        // A program in exclusive mode makes no index.
        case .made, .open: return false
        }
    }

    /// Records an event of the index's name. Returns false if it isn't understood.
    mutating func recordIndex(_ mask: UInt32, _ name: StoreName, in directory: Directory) -> Bool {
        switch phase {
        case .made(let log):
            if mask & UInt32(IN_CLOSE_WRITE) != 0 { return true }
            guard mask & UInt32(IN_CREATE) != 0, let index = try? WALIndexFile(name.sharedMemory, in: directory),
                finished.last?.index.identity != index.identity
            else { return false }
            phase = .open(Log(log: log, index: index))
            return true
        case .open(var log):
            if mask & UInt32(IN_CLOSE_WRITE) != 0 {
                log.wasLeft = true
                phase = .open(log)
                return true
            }
            guard mask & UInt32(IN_DELETE) != 0, (try? log.index.status())?.links == 0 else { return false }
            phase = .closing(log)
            return true
        // The last program closes the index after it has removed it.
        case .between, .closing: return mask & UInt32(IN_CLOSE_WRITE) != 0
        }
    }
}
