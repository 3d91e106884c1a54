import LinuxSystem
import SQLiteFormat

/// Finds writes to the database of a store with a wal-index that are no checkpoint's: a file that was copied over it,
/// or the checkpoint of a program that keeps its index in private memory, or keeps none.
///
/// A checkpoint copies frames that the index reports. It records in the index that it has copied them before the WAL
/// is restarted. So a database that was written while the index shows no later checkpoint has content of its own.
struct UnloggedWrites {
    enum Finding {
        case nothing
        /// A checkpoint is under way, which may explain the write.
        case checkpointing
        /// An event that is still queued may explain the write. Poll again after the delay.
        case doubtful(Duration)
        case found
    }

    /// The present state of the store's files.
    struct State {
        /// The index before the database's stamp was read; nil if it reports nothing.
        let former: WriteAheadIndex?
        let stamp: StoreFiles.Stamp
        /// True if a checkpoint may be under way.
        let isCheckpointing: Bool
        /// The index after the stamp was read.
        let index: WriteAheadIndex?
        let commit: WALPosition
    }

    /// The state whose content is published.
    private struct Known {
        let stamp: StoreFiles.Stamp
        let index: WriteAheadIndex?
        let commit: WALPosition

        /// True if the database has everything that the WAL had.
        var isComplete: Bool { index.map { $0.backfilledFrame == $0.lastFrame } ?? (commit.frame == 0) }
    }

    private var known: Known?
    /// The database's stamp before the index was created.
    private let idleStamp: StoreFiles.Stamp?
    private var deadline: ContinuousClock.Instant?
    /// True if an event reported a write to the database since the last poll that looked for one.
    private(set) var isAnnounced = false

    /// - Parameter idleStamp: The database's stamp before the index was created; nil if another write may be in it.
    init(after idleStamp: StoreFiles.Stamp? = nil) { self.idleStamp = idleStamp }

    /// Returns the database's stamp at the known state, and the last frame of the WAL of `commit` that it had. Until a
    /// checkpoint copies more, no program that keeps the index writes the database.
    func known(in commit: WALPosition) -> (StoreFiles.Stamp, UInt32)? {
        known.map { ($0.stamp, $0.index?.salt == commit.salt ? $0.index?.backfilledFrame ?? 0 : 0) }
    }

    /// True if nothing is known of the database, or a write awaits its explanation.
    var isDoubtful: Bool { known == nil || deadline != nil }

    /// True if the database has this stamp since what is in it was published.
    func isPublished(at stamp: StoreFiles.Stamp) -> Bool { (known?.stamp ?? idleStamp) == stamp }

    mutating func recordEvent(_ part: StorePart, modified: Bool) {
        if part == .database, modified { isAnnounced = true }
    }

    /// Takes the present state as published.
    mutating func record(_ now: State) {
        known = Known(stamp: now.stamp, index: now.former, commit: now.commit)
        deadline = nil
        isAnnounced = false
    }

    /// True if everything in the database is published.
    func isPublished(_ now: State) -> Bool {
        !isWritten(now) || !now.isCheckpointing && isExplained(now)
    }

    /// Compares the present state with the known one.
    ///
    /// - Parameters:
    ///   - isEmptied: True if the WAL has lost its commits.
    ///   - isChanged: True if a change is published in any case.
    mutating func inspect(_ now: State, isEmptied: Bool, isChanged: Bool) -> Finding {
        let isLost = isEmptied && known?.isComplete == false
        guard isLost || isWritten(now), !isExplained(now) else {
            record(now)
            return .nothing
        }
        // It shows in the index when it ends.
        if now.isCheckpointing { return .checkpointing }
        if isChanged { return .found }
        guard let deadline else {
            deadline = .now.advanced(by: IdleState.settlingTime)
            return .doubtful(IdleState.settlingTime)
        }
        let delay = ContinuousClock.now.duration(to: deadline)
        return delay > .zero ? .doubtful(delay) : .found
    }

    private func isWritten(_ now: State) -> Bool {
        guard let known else {
            // The index was created from an empty WAL and has seen no commit.
            guard let idleStamp, let index = now.index, index.salt == 0, index.lastFrame == 0 else { return false }
            return idleStamp != now.stamp
        }
        // A change of the file's status alone, such as its mode, is no write.
        return known.stamp != now.stamp || isAnnounced && !known.stamp.isIdentical(to: now.stamp)
    }

    /// True if a checkpoint may have written the database since.
    private func isExplained(_ now: State) -> Bool {
        guard let known else { return false }
        guard let index = now.index else { return false }
        // Whoever recovers the WAL counts what it has copied from 0.
        guard let former = known.index else { return known.commit.frame > 0 && index.backfilledFrame > 0 }
        if known.isComplete, known.commit == now.commit { return false }
        return index.salt != former.salt || index.backfilledFrame > former.backfilledFrame
    }
}

extension StoreObserver {
    /// Reads what `UnloggedWrites` compares.
    func databaseState(_ files: StoreFiles) throws -> UnloggedWrites.State {
        func index() throws -> WriteAheadIndex? {
            try files.readIndex().flatMap { baseline.isOverruled($0) ? nil : $0 }
        }
        let former = try index()
        let stamp = try files.stamp()
        let isCheckpointing = files.isCheckpointLocked()
        return UnloggedWrites.State(
            former: former, stamp: stamp, isCheckpointing: isCheckpointing, index: try index(),
            commit: baseline.commit)
    }

    /// Looks for a write to the database that no checkpoint made.
    ///
    /// - Parameters:
    ///   - emptied: The index beside a WAL that has lost its commits.
    ///   - isChanged: True if a change is published in any case.
    func inspectDatabase(
        _ files: StoreFiles, emptied: AbandonedWAL.Emptied?, isChanged: Bool
    ) throws -> UnloggedWrites.Finding {
        let finding = unloggedWrites.inspect(
            try databaseState(files), isEmptied: emptied != nil, isChanged: isChanged)
        switch finding {
        case .checkpointing, .doubtful: break
        case .nothing:
            // The database has what the WAL had. A commit that came since isn't published yet.
            guard let emptied else { break }
            baseline.recordEmptied(emptied.index)
            unloggedWrites.record(try databaseState(files))
        case .found:
            sessions.recordWrite()
            tracker.addUnknown()
            discardPageMap()
            // The change that is published now covers all of it.
            abandonedWAL = AbandonedWAL()
            baseline = try files.baseline()
            unloggedWrites.record(try databaseState(files))
        }
        return finding
    }
}
