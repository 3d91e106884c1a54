import Dispatch
import LinuxSystem
import SQLiteFormat
import Synchronization

/// Reads a whole store to learn which page is whose, on a thread of its own choice, while others write it.
///
/// What it reads is the store as it was at one commit: pages in the log up to that frame from there, the others from
/// the database. They are that commit's unless the log began anew, or a checkpoint took later frames to the database,
/// while it read: then it fails, and can be tried again. It has no descriptor once it has ended or was cancelled.
package final class PageMapScan: Sendable {
    /// What is read.
    struct Subject: Sendable {
        let database: SharedDescriptor
        /// Nil where no program has the store open, and there is no log.
        let log: OpenLog?
    }

    struct OpenLog: Sendable {
        let file: WALFile
        let index: WALIndexFile
        /// The commit.
        let known: WriteAheadIndex

        var pageSize: Int { known.pageSize }
    }

    private enum State {
        case waiting(Subject)
        case running
        case ended(Result<PageMap, any Error>)
    }

    private let state: Mutex<State>
    private let isCancelled = Atomic(false)
    private let hasEnded = DispatchSemaphore(value: 0)
    /// The commit at which the store is read; nil without a log.
    let commit: WriteAheadIndex?
    let events: SideFileEventCounts
    private let readingTime = Mutex(Duration.zero)
    /// How long it was read for; what it waited for its turn doesn't count.
    var taken: Duration { readingTime.withLock { $0 } }

    /// `events`: all until now.
    init(_ subject: Subject, _ events: SideFileEventCounts) {
        commit = subject.log?.known
        self.events = events
        state = Mutex(.waiting(subject))
    }

    /// Reads the store. For any thread, once.
    package func run() {
        let subject: Subject? = state.withLock { state in
            guard case .waiting(let subject) = state else { return nil }
            state = .running
            return subject
        }
        guard let subject else { return }
        let began = ContinuousClock.now
        let result = Result { try read(subject) }
        readingTime.withLock { $0 = began.duration(to: .now) }
        state.withLock { $0 = .ended(result) }
        hasEnded.signal()
    }

    private func read(_ subject: Subject) throws -> PageMap {
        let pages = try ScannedPages(subject) { [self] in isCancelled.load(ordering: .relaxed) }
        let owners = Result { try PageMap(pages) }
        // What looks damaged may have been written meanwhile.
        if !isCancelled.load(ordering: .relaxed) { try pages.confirm() }
        return try owners.get()
    }

    /// Returns when nothing of the store is open here any more.
    func cancel() {
        isCancelled.store(true, ordering: .relaxed)
        let isRunning = state.withLock { state in
            switch state {
            case .waiting:
                state = .ended(.failure(Unattributable.cancelled))
                return false
            case .running: return true
            case .ended: return false
            }
        }
        if isRunning { hasEnded.wait() }
    }

    /// What was found; nil while it is under way.
    var result: Result<PageMap, any Error>? {
        state.withLock { if case .ended(let result) = $0 { result } else { nil } }
    }
}

/// The pages of the store that a survey reads.
private final class ScannedPages: PageSource {
    let pageCount: UInt32
    private let subject: PageMapScan.Subject
    private let isCancelled: () -> Bool
    private let pageSize: Int
    /// The last frame of each page that the log has.
    private var frames: [UInt32: UInt32] = [:]
    private let buffer: UnsafeMutableRawBufferPointer

    init(_ subject: PageMapScan.Subject, _ isCancelled: @escaping () -> Bool) throws {
        self.subject = subject
        self.isCancelled = isCancelled
        if let log = subject.log, log.known.lastFrame > 0 {
            pageSize = log.pageSize
            (frames, pageCount) = try Self.frames(of: log, isCancelled)
        } else {
            guard let header = DatabaseHeader(try subject.database.read(count: DatabaseHeader.length, at: 0)),
                header.pageCount > 0, header.changeCounter == header.versionValidFor
            else { throw Unattributable.malformed(page: 1) }
            pageSize = header.pageSize
            pageCount = header.pageCount
        }
        buffer = .allocate(byteCount: pageSize, alignment: 8)
    }

    deinit { buffer.deallocate() }

    private static func frames(
        of log: PageMapScan.OpenLog, _ isCancelled: () -> Bool
    ) throws -> ([UInt32: UInt32], UInt32) {
        var frames: [UInt32: UInt32] = [:]
        var pageCount: UInt32 = 0
        guard try log.file.belongs(to: log.known) else { throw Unattributable.disturbed }
        for frame in 1...log.known.lastFrame {
            if isCancelled() { throw Unattributable.cancelled }
            let header = try log.file.read(
                count: WALFile.frameHeaderLength, at: WALFile.offset(ofFrame: frame, log.pageSize))
            guard header.count == WALFile.frameHeaderLength else { throw Unattributable.disturbed }
            header.withUnsafeBytes { bytes in
                frames[bytes.word(0)] = frame
                pageCount = bytes.word(4)
            }
        }
        // The last frame is a commit's.
        guard pageCount > 0 else { throw Unattributable.disturbed }
        return (frames, pageCount)
    }

    func isChanged(_ page: UInt32) -> Bool { true }

    func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
        if isCancelled() { throw Unattributable.cancelled }
        let read: Int
        if let log = subject.log, let frame = frames[page] {
            let offset = WALFile.offset(ofFrame: frame, pageSize) + Int64(WALFile.frameHeaderLength)
            read = try log.file.read(into: buffer, at: offset)
        } else {
            read = try subject.database.read(into: buffer, at: Int64(page - 1) * Int64(pageSize))
        }
        guard read == pageSize else { throw Unattributable.malformed(page: page) }
        return UnsafeRawBufferPointer(buffer)
    }

    /// That the pages were those of one commit all the time. Without a log, the observer knows it.
    func confirm() throws {
        guard let log = subject.log else { return }
        guard let index = try log.index.readWhole(), index.salt == log.known.salt,
            index.lastFrame >= log.known.lastFrame, index.checkpointedFrame <= log.known.lastFrame
        else { throw Unattributable.disturbed }
    }
}
