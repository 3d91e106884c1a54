import DirectoryWatching
import Glibc
import LinuxSystem
import SQLiteFormat
import Synchronization
import SystemPackage

/// Holds the rollback journals of a store's transactions until they are read, and proves from the order of the kernel's
/// events that nothing else wrote the store.
///
/// In SQLite's default mode a transaction makes the journal, writes the database, and removes the journal: that is the
/// commit. A journal that was opened in between can be read afterwards. The kernel queues the events of a directory in
/// order: the database is written only between the making and the removal of a journal, or by something that is no
/// transaction. A journal that persists, or that is gone before it could be opened, proves nothing.
///
/// In WAL mode it holds the logs that programs leave behind when the last one closes the store (`HeldLogs`).
///
/// A thread waits for the events: a transaction may take less time than what is done with the last one.
package final class JournalWatch: Sendable {
    /// What is held.
    package enum Subject: Sendable {
        case journals
        /// The logs of the store's database with that identity.
        case logs(of: FileIdentity)
    }

    /// A journal that has lost its name.
    package struct Held: Sendable {
        package let file: SharedDescriptor
        /// In bytes.
        package let size: Int64

        /// Reads the pages that the transaction may have changed; nil if they aren't known.
        package func pages(pageSize: Int) throws -> JournaledPages? {
            try JournaledPages(pageSize: pageSize, size: size) { (count, offset) throws(SystemError) in
                try file.read(count: count, at: offset)
            }
        }
    }

    fileprivate enum Phase {
        /// No journal exists.
        case between
        /// A journal exists, which is open.
        case inside(SharedDescriptor)
        /// Something was seen that isn't understood: compare the store anew.
        case unproven
    }

    fileprivate struct State {
        var phase = Phase.unproven {
            didSet { if !isProven { (finished, logs) = ([], HeldLogs()) } }
        }
        var logs = HeldLogs()
        /// The journals that were removed since the last `begin` and that weren't dropped, in order.
        var finished: [Held] = []
        /// The number of journals that were opened.
        var madeCount = 0
        /// True if the database was written since the present journal was made.
        var wasWritten = false
        /// True if a program that had the database open for writing closed it. Writes to mapped memory raise no event
        /// but that, and a copy over the database ends with it, perhaps while a journal exists.
        var wasClosed = false
        var hasSeenTransaction = false
    }

    private let state = Mutex(State())
    /// Used while `state` is locked, except for the wait and the wake-up, which any thread may call.
    nonisolated(unsafe) private let inotify: SystemInotify
    private let directory: Directory
    private let name: StoreName
    /// The names of the files, as events have them.
    private let (databaseName, journalName, logName, indexName): ([UInt8], [UInt8], [UInt8], [UInt8])
    /// The watch of the database itself while logs are held. A writer's log would wake the thread at each write.
    private let databaseWatch: CInt?

    /// The number of watches in this process. A user has 128 instances for all programs, by default.
    private static let count = Atomic(0)
    private static let maximumCount = 16
    /// What may wait to be read: descriptors, and bytes of the disk.
    static let (maximumFinished, maximumSize) = (256, Int64(64 << 20))
    /// What is read at once. The queue of a store that is written all the time may never be empty.
    private static let maximumEvents = 4096
    private static let changedNames = UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
    private static let mask = changedNames | UInt32(IN_MODIFY | IN_CLOSE_WRITE)

    /// Throws `SystemError` if it can't be had: then the pages of each commit are compared.
    package init(_ path: FilePath, _ name: StoreName, _ subject: Subject = .journals) throws(SystemError) {
        self.name = name
        (databaseName, journalName) = (name.database.bytes, name.journal.bytes)
        (logName, indexName) = (name.wal.bytes, name.sharedMemory.bytes)
        directory = try Directory(path)
        let inotify = try SystemInotify()
        self.inotify = inotify
        let itself = try directory.open(".", flags: O_RDONLY | O_DIRECTORY)
        var databaseWatch: CInt?
        switch subject {
        case .journals: _ = try inotify.watch(itself, mask: Self.mask, path: path)
        case .logs(let identity):
            let file = path.appending(name.database)
            let database = try directory.open(name.database, flags: O_RDONLY | O_NONBLOCK)
            guard try database.status().identity == identity else {
                throw SystemError("open", .noSuchFileOrDirectory, path: file)
            }
            databaseWatch = try inotify.watch(database, mask: UInt32(IN_MODIFY), path: file)
            _ = try inotify.watch(itself, mask: Self.changedNames | UInt32(IN_CLOSE_WRITE), path: path)
        }
        self.databaseWatch = databaseWatch
        // `deinit` runs, and counts, also after an error from here on: every property has its value.
        guard Self.count.add(1, ordering: .relaxed).newValue <= Self.maximumCount else {
            throw SystemError("inotify_init", .tooManyOpenFiles, path: path)
        }
        // The thread calls nothing but `wait`, which any thread may call.
        nonisolated(unsafe) let events = inotify
        _ = try SystemThread(name: "gs-journals") { [weak self] in
            while (try? events.wait()) == true { self?.read() }
        }
    }

    deinit {
        Self.count.subtract(1, ordering: .relaxed)
        inotify.wake()
    }

    /// Forgets what was seen. What a comparison finds that begins now is what later journals continue.
    package func begin() {
        state.withLock { state in
            read(&state)
            (state.finished, state.wasWritten, state.wasClosed) = ([], false, false)
            // One that exists may be of a program that is gone. If one is made just now, its event is still to come.
            state.phase = (try? directory.status(name.journal)) == .some(nil) ? .between : .unproven
            if holdsLogs, state.isProven, !state.logs.begin(name, in: directory) { state.phase = .unproven }
        }
    }

    /// True if logs are held, and not journals.
    package var holdsLogs: Bool { databaseWatch != nil }

    /// Opens the journal that queued events tell of.
    package func read() { state.withLock { read(&$0) } }

    /// The journals that were removed since `begin` and that weren't dropped, in order; nil if they aren't those of all
    /// that has written the store since.
    package var finished: [Held]? {
        state.withLock { state in
            guard !holdsLogs else { return nil }
            read(&state)
            return state.isProven ? state.finished : nil
        }
    }

    /// The logs that programs had since `begin` and that weren't dropped, in order; nil if something else may have
    /// written the store since. Only the last one may still have its name.
    package var logs: HeldLogs? {
        state.withLock { state in
            guard holdsLogs else { return nil }
            read(&state)
            return state.isProven ? state.logs : nil
        }
    }

    /// Forgets the first log that has lost its name.
    package func dropLog() { state.withLock { $0.logs.drop() } }

    /// True if a transaction's events were seen: those of this store's writers arrive here.
    package var hasSeenTransaction: Bool { state.withLock { $0.hasSeenTransaction } }

    /// True unless something was seen that isn't understood.
    package var isProven: Bool { state.withLock { $0.isProven } }

    /// Forgets journals that were read.
    package func drop(_ count: Int) {
        state.withLock { $0.finished.removeFirst(min(count, $0.finished.count)) }
    }

    /// True if nothing has written the database since the last of `count` journals was removed.
    package func isQuiet(after count: Int) -> Bool {
        state.withLock { state in
            read(&state)
            let made = state.madeCount
            guard state.finished.count == count, state.isProven, !state.isHot else { return false }
            // If a transaction has ended meanwhile, its events are queued by now.
            read(&state)
            guard state.finished.count == count, made == state.madeCount, state.isProven else { return false }
            guard state.wasWritten else { return true }
            // It has ended, and its journal persists.
            state.phase = .unproven
            return false
        }
    }

    /// Returns true if the database was closed since the last call.
    package func takeClosed() -> Bool {
        state.withLock { state in
            defer { state.wasClosed = false }
            return state.wasClosed
        }
    }

    private func read(_ state: inout State) {
        do {
            for _ in 0..<Self.maximumEvents where state.isProven {
                guard let next = try inotify.next(timeout: .zero, onReadable: nil, fastPath: nil) else { return }
                if case .event(let event) = next { record(event, &state) }
            }
            // The next `begin` asks for nothing that was before it. To look at each event would hold up whoever waits
            // for this, for as long as programs write faster than it reads.
            state.phase = .unproven
            try inotify.discard()
        } catch { state.phase = .unproven }
    }

    private func record(_ event: InotifyEvent, _ state: inout State) {
        guard event.mask & UInt32(IN_Q_OVERFLOW | IN_IGNORED | IN_UNMOUNT) == 0 else {
            return state.phase = .unproven
        }
        let hasChangedName = event.mask & Self.changedNames != 0
        if holdsLogs { return recordLog(event, &state) }
        if event.name == journalName {
            if hasChangedName { recordJournal(event.mask, &state) }
        } else if event.name == databaseName {
            if hasChangedName { return state.phase = .unproven }
            guard event.mask & UInt32(IN_MODIFY) != 0 else { return state.wasClosed = true }
            switch state.phase {
            case .between: state.phase = .unproven
            case .inside: state.wasWritten = true
            case .unproven: break
            }
        } else if event.name == logName, hasChangedName {
            state.phase = .unproven
        }
    }

    private func recordLog(_ event: InotifyEvent, _ state: inout State) {
        let isUnderstood: Bool
        if event.mask & UInt32(IN_CLOSE_WRITE) != 0, event.name != indexName {
            isUnderstood = true
        } else if event.watch == databaseWatch {
            isUnderstood = state.logs.mayWrite
        } else if event.name == logName {
            isUnderstood = state.logs.recordLog(event.mask, name, in: directory)
        } else if event.name == indexName {
            isUnderstood = state.logs.recordIndex(event.mask, name, in: directory)
        } else {
            isUnderstood = event.name != databaseName && event.name != journalName
        }
        if !isUnderstood { state.phase = .unproven }
    }

    private func recordJournal(_ mask: UInt32, _ state: inout State) {
        switch state.phase {
        case .unproven: break
        case .between:
            guard mask & UInt32(IN_CREATE) != 0, state.finished.count < Self.maximumFinished,
                let journal = try? directory.open(name.journal, flags: O_RDONLY)
            else { return state.phase = .unproven }
            state.phase = .inside(SharedDescriptor(journal))
            state.madeCount += 1
        case .inside(let journal):
            // No transaction writes the database without records in its journal. One that still has a name is a later
            // journal than the one that is gone.
            guard mask & UInt32(IN_DELETE) != 0, !state.wasWritten || state.isHot,
                let status = try? journal.status(), status.links == 0,
                state.finished.reduce(status.size, { $0 + $1.size }) <= Self.maximumSize
            else { return state.phase = .unproven }
            (state.phase, state.wasWritten, state.hasSeenTransaction) = (.between, false, true)
            state.finished.append(Held(file: journal, size: status.size))
        }
    }
}

extension JournalWatch.State {
    fileprivate var isProven: Bool {
        if case .unproven = phase { false } else { true }
    }

    /// True if the present transaction may be writing the database: before it does, the journal's header has the number
    /// of records.
    fileprivate var isHot: Bool {
        guard case .inside(let journal) = phase else { return false }
        guard let header = try? journal.read(count: 12, at: 0) else { return true }
        return header.count == 12 && header[8...].contains { $0 != 0 }
    }
}
