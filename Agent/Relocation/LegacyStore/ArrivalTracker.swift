import DirectoryWatching
import SQLiteFormat

/// Whether a legacy store has arrived whole. A set that is copied or moved in comes part by part, the database
/// first and its `-wal` later; a relocation in between would leave half a store behind.
///
/// Time is passed in, so that a test needs none.
struct ArrivalTracker: Equatable {
    typealias Instant = ContinuousClock.Instant

    private enum State: Equatable {
        case absent
        /// The database was created at this instant, and nobody has closed it after writing yet. `isInUse` when a
        /// side file came meanwhile: then it is a program that works with it, not a copy being made.
        case beingWritten(since: Instant, isInUse: Bool)
        /// No part came since; whole at this instant, when none comes before.
        case settling(until: Instant)
    }

    let settle: Duration
    private var state = State.absent

    init(settle: Duration) { self.settle = settle }

    /// When the store counts as whole, provided that nothing happens before; nil when there is none.
    var wholeAt: Instant? {
        switch state {
        case .absent: nil
        // A hard link makes a name without anybody writing: then nobody has it open at that instant either.
        case .beingWritten(let since, _): since.advanced(by: settle)
        case .settling(let until): until
        }
    }

    func isWhole(at now: Instant) -> Bool { wholeAt.map { $0 <= now } ?? false }

    /// A store that was there before anybody watched: as old as the younger of its own change and its directory's.
    mutating func found(age: Duration, at now: Instant) {
        state = .settling(until: now.advanced(by: settle - min(max(age, .zero), settle)))
    }

    mutating func vanished() { state = .absent }

    /// `isOpen` is asked only where the answer matters: whether somebody has the database open now.
    mutating func note(
        _ part: StorePart, _ kinds: DirectoryEvent.Kinds, at now: Instant, isOpen: () -> Bool
    ) {
        if part == .database { noteDatabase(kinds, now) } else { noteSide(kinds, now, isOpen) }
    }

    private mutating func noteDatabase(_ kinds: DirectoryEvent.Kinds, _ now: Instant) {
        if !kinds.isDisjoint(with: .departed) { state = .absent }
        if kinds.contains(.movedIn) { state = .settling(until: now.advanced(by: settle)) }
        if kinds.contains(.created) { state = .beingWritten(since: now, isInUse: false) }
        if kinds.contains(.closedAfterWriting), case .beingWritten(let since, let isInUse) = state {
            state = .settling(until: (isInUse ? since : now).advanced(by: settle))
        }
    }

    private mutating func noteSide(_ kinds: DirectoryEvent.Kinds, _ now: Instant, _ isOpen: () -> Bool) {
        guard !kinds.isDisjoint(with: [.created, .movedIn, .closedAfterWriting]) else { return }
        switch state {
        case .absent: break
        case .beingWritten(let since, _): state = .beingWritten(since: since, isInUse: true)
        case .settling(let until):
            guard until > now, !isOpen() else { return }
            state = .settling(until: now.advanced(by: settle))
        }
    }
}
