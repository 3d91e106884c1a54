import DirectoryWatching
import SQLiteFormat

/// Decides whether a legacy store has arrived whole. A set that is copied or moved in comes part by part, the database
/// first and its `-wal` later; a relocation in between would leave half a store behind.
///
/// Time is passed in, so that a test needs none.
struct ArrivalTracker: Equatable {
    typealias Instant = ContinuousClock.Instant

    private enum State: Equatable {
        case absent
        /// The database was created at this instant, and nobody has closed it after writing yet. `isInUse` if a side
        /// file came meanwhile: then a program works with it, and it is not a copy being made.
        case beingWritten(since: Instant, isInUse: Bool)
        /// No part came since; whole at this instant, if none comes before.
        case settling(until: Instant)
    }

    let settle: Duration
    private var state = State.absent

    init(settle: Duration) { self.settle = settle }

    /// The time at which the store counts as whole, if nothing happens before; nil if there is no store.
    var wholeAt: Instant? {
        switch state {
        case .absent: nil
        // A hard link makes a name without a write: then nobody has it open at that instant either.
        case .beingWritten(let since, _): since.advanced(by: settle)
        case .settling(let until): until
        }
    }

    func isWhole(at now: Instant) -> Bool { wholeAt.map { $0 <= now } ?? false }

    /// Starts with a store from before the watch. Its age is that of the younger of its own change and its directory's.
    mutating func start(age: Duration, at now: Instant) {
        state = .settling(until: now.advanced(by: settle - min(max(age, .zero), settle)))
    }

    mutating func vanished() { state = .absent }

    /// Records an event. `isOpen`, called only if the answer matters, returns true if a program has the database open.
    mutating func record(
        _ part: StorePart, _ kinds: DirectoryEvent.Kinds, at now: Instant, isOpen: () -> Bool
    ) {
        if part == .database { recordDatabase(kinds, at: now) } else { recordSideFile(kinds, at: now, isOpen: isOpen) }
    }

    private mutating func recordDatabase(_ kinds: DirectoryEvent.Kinds, at now: Instant) {
        if !kinds.isDisjoint(with: .departed) { state = .absent }
        if kinds.contains(.movedIn) { state = .settling(until: now.advanced(by: settle)) }
        if kinds.contains(.created) { state = .beingWritten(since: now, isInUse: false) }
        if kinds.contains(.closedAfterWriting), case .beingWritten(let since, let isInUse) = state {
            state = .settling(until: (isInUse ? since : now).advanced(by: settle))
        }
    }

    private mutating func recordSideFile(_ kinds: DirectoryEvent.Kinds, at now: Instant, isOpen: () -> Bool) {
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
