/// The state of a database that SQLite doesn't write, because nobody has the store open in WAL mode, or because it has
/// no header.
enum IdleState: Equatable {
    /// A program has the store open, or what is in the database isn't published.
    case inUse
    /// Everything in the database is published. `settled` is nil if a write could have left the stamp unchanged since.
    case idle(at: StoreFiles.Stamp, settled: StoreFiles.Stamp?)
    /// The database was written. Events that are queued until the deadline may explain it.
    case doubtful(since: StoreFiles.Stamp?, settled: StoreFiles.Stamp?, until: ContinuousClock.Instant)

    enum Finding {
        case unchanged, doubtful, written
    }

    /// The time to allow for queued events. It is longer than a program takes from its write to the removal of its
    /// index, when it holds neither lock.
    static let settlingTime = Duration.milliseconds(5)

    /// The state after everything in the database was published.
    ///
    /// - Parameter stamp: The database's stamp, taken before it was read.
    init(publishedAt stamp: StoreFiles.Stamp) { self = .idle(at: stamp, settled: stamp.whenSettled) }

    /// The database's stamp when everything in it was published; nil if it isn't known.
    var stamp: StoreFiles.Stamp? {
        switch self {
        case .inUse: nil
        case .idle(let stamp, _): stamp
        case .doubtful(let stamp, _, _): stamp
        }
    }

    /// The same stamp, or nil if a write could have left it unchanged since.
    var settledStamp: StoreFiles.Stamp? {
        switch self {
        case .inUse: nil
        case .idle(_, let settled), .doubtful(_, let settled, _): settled
        }
    }

    /// Compares the database with what was published.
    ///
    /// - Parameters:
    ///   - stamp: The database's present stamp.
    ///   - wasWritten: True if events report a write.
    ///   - isExact: True if a change of the file's status alone counts as a write.
    mutating func inspect(
        _ stamp: StoreFiles.Stamp, wasWritten: Bool, isExact: Bool, at time: ContinuousClock.Instant = .now
    ) -> Finding {
        let isWritten = self.stamp.map { isExact ? !$0.isIdentical(to: stamp) : $0 != stamp } ?? false
        guard wasWritten || isWritten else {
            self = Self(publishedAt: stamp)
            return .unchanged
        }
        guard case .doubtful(_, _, let deadline) = self else {
            self = .doubtful(
                since: self.stamp, settled: settledStamp, until: time.advanced(by: Self.settlingTime))
            return .doubtful
        }
        guard deadline <= time else { return .doubtful }
        self = Self(publishedAt: stamp)
        return .written
    }
}
