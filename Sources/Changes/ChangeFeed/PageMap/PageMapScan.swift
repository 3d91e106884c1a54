import LinuxSystem
import SQLiteFormat
import Synchronization

/// Reads a whole store to determine which table owns each page, on the thread that calls `run()`, while other processes
/// write it.
///
/// The scan reads the store as of one commit: pages up to that commit's frame from the WAL, the others from the
/// database. It fails, and can be repeated, if the WAL was restarted or a checkpoint copied later frames to the
/// database meanwhile. A finished or cancelled scan holds no descriptor.
package final class PageMapScan: Sendable {
    /// The files to read.
    struct Subject: Sendable {
        let database: SharedDescriptor
        /// Nil if no program has the store open and there is no WAL.
        let wal: OpenWAL?
        /// The commit to read the store at in rollback mode; nil in WAL mode.
        var changeCounter: UInt32?
    }

    /// The result of reading the store.
    struct Finding: Sendable {
        let pageMap: PageMap
        /// The digests of all pages in rollback mode; nil in WAL mode, and for a store that is too large for them.
        let digests: PageDigests?
        /// The database's stamp before and after the reading in rollback mode; nil in WAL mode.
        let stamp: StoreFiles.Stamp?
    }

    struct OpenWAL: Sendable {
        let file: WALFile
        let index: WALIndexFile
        /// The commit to read the store at.
        let commit: WriteAheadIndex

        var pageSize: Int { commit.pageSize }
    }

    private enum State {
        case waiting(Subject)
        case running
        case ended(Result<Finding, any Error>)
    }

    private let state: Mutex<State>
    private let isCancelled = Atomic(false)
    private let hasEnded = MonotonicSemaphore()
    /// The commit at which the store is read, or nil without a WAL.
    let commit: WriteAheadIndex?
    /// The change counter of the commit at which the store is read in rollback mode; nil in WAL mode.
    let changeCounter: UInt32?
    let events: SideFileEventCounts
    private let readingTime = Mutex(Duration.zero)
    /// The time spent reading, without the wait for a turn.
    var readingDuration: Duration { readingTime.withLock { $0 } }

    /// Creates a scan. `events` holds all counts so far.
    init(_ subject: Subject, _ events: SideFileEventCounts) {
        commit = subject.wal?.commit
        changeCounter = subject.changeCounter
        self.events = events
        state = Mutex(.waiting(subject))
    }

    /// Reads the store. Call it once, on any thread.
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

    private func read(_ subject: Subject) throws -> Finding {
        let stamp = try subject.changeCounter.map { _ in try settledStamp(of: subject.database) }
        let pages = try ScannedPages(subject) { [self] in isCancelled.load(ordering: .relaxed) }
        let pageMap = Result { try PageMap(pages) }
        // Apparent damage may come from a concurrent write.
        if !isCancelled.load(ordering: .relaxed) { try pages.confirm() }
        guard stamp != nil else { return Finding(pageMap: try pageMap.get(), digests: nil, stamp: nil) }
        let digests = pages.size <= PageDigests.maximumSize ? try pages.digests() : nil
        // A transaction that writes pages early, and is then rolled back, leaves no other trace.
        guard try StoreFiles.Stamp(subject.database.status()) == stamp else { throw Unattributable.disturbed }
        return Finding(pageMap: try pageMap.get(), digests: digests, stamp: stamp)
    }

    /// Waits for a moment from which on each write changes the stamp, and returns the stamp. Throws
    /// `Unattributable.disturbed` if the file is written all the time.
    private func settledStamp(of database: SharedDescriptor) throws -> StoreFiles.Stamp {
        for _ in 0..<10 {
            if let stamp = StoreFiles.Stamp(try database.status()).whenSettled { return stamp }
            if isCancelled.load(ordering: .relaxed) { throw Unattributable.cancelled }
            pause(FileTime.resolution / 2)
        }
        throw Unattributable.disturbed
    }

    /// Cancels the scan. Returns once it holds no open file of the store.
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

    /// The scan's result, or nil until it has ended.
    var result: Result<Finding, any Error>? {
        state.withLock { if case .ended(let result) = $0 { result } else { nil } }
    }
}

/// The pages of the scanned store.
private final class ScannedPages: PageSource {
    let pageCount: UInt32
    private let subject: PageMapScan.Subject
    private let isCancelled: () -> Bool
    private let pageSize: Int
    /// The last frame of each page in the WAL.
    private var frames: [UInt32: UInt32] = [:]
    private let buffer: UnsafeMutableRawBufferPointer

    init(_ subject: PageMapScan.Subject, _ isCancelled: @escaping () -> Bool) throws {
        self.subject = subject
        self.isCancelled = isCancelled
        if let wal = subject.wal, wal.commit.lastFrame > 0 {
            pageSize = wal.pageSize
            (frames, pageCount) = try Self.frames(of: wal, isCancelled)
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
        of wal: PageMapScan.OpenWAL, _ isCancelled: () -> Bool
    ) throws -> ([UInt32: UInt32], UInt32) {
        var frames: [UInt32: UInt32] = [:]
        var pageCount: UInt32 = 0
        guard try wal.file.belongs(to: wal.commit) else { throw Unattributable.disturbed }
        for frame in 1...wal.commit.lastFrame {
            if isCancelled() { throw Unattributable.cancelled }
            let header = try wal.file.read(
                count: WALFile.frameHeaderLength, at: WALFile.offset(ofFrame: frame, wal.pageSize))
            guard header.count == WALFile.frameHeaderLength else { throw Unattributable.disturbed }
            header.withUnsafeBytes { bytes in
                frames[bytes.word(0)] = frame
                pageCount = bytes.word(4)
            }
        }
        // The last frame ends a commit.
        guard pageCount > 0 else { throw Unattributable.disturbed }
        return (frames, pageCount)
    }

    func isChanged(_ page: UInt32) -> Bool { true }

    func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
        if isCancelled() { throw Unattributable.cancelled }
        let read: Int
        if let wal = subject.wal, let frame = frames[page] {
            let offset = WALFile.offset(ofFrame: frame, pageSize) + Int64(WALFile.frameHeaderLength)
            read = try wal.file.read(into: buffer, at: offset)
        } else {
            read = try subject.database.read(into: buffer, at: Int64(page - 1) * Int64(pageSize))
        }
        guard read == pageSize else { throw Unattributable.malformed(page: page) }
        return UnsafeRawBufferPointer(buffer)
    }

    /// In bytes.
    var size: Int { Int(pageCount) * pageSize }

    /// Returns the digests of all pages. Whether nobody wrote meanwhile, the observer checks.
    func digests() throws -> PageDigests {
        try PageDigests(subject.database, pageSize: pageSize, pageCount: pageCount)
    }

    /// Throws if the pages may come from more than one commit. Without a WAL, the observer checks that.
    func confirm() throws {
        guard let wal = subject.wal else { return }
        guard let index = try wal.index.readWhole(), index.salt == wal.commit.salt,
            index.lastFrame >= wal.commit.lastFrame, index.checkpointedFrame <= wal.commit.lastFrame
        else { throw Unattributable.disturbed }
    }
}
