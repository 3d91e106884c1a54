/// The stamps of a database in rollback mode, in which each commit writes it.
struct RollbackStamps {
    /// The stamp as of the last finding; nil if another write may be in it.
    var published: StoreFiles.Stamp?
    /// The stamp as of the last settled poll.
    private(set) var inspected: StoreFiles.Stamp?
    /// The same stamp; nil if a later write could have left it unchanged, or if it is of a write that isn't published
    /// yet.
    private(set) var settled: StoreFiles.Stamp?

    init() {}

    /// The stamps after everything in the database was published.
    init(publishedAt stamp: StoreFiles.Stamp) {
        published = stamp
        settle(at: stamp)
    }

    /// Records a settled poll.
    mutating func settle(at stamp: StoreFiles.Stamp) {
        // A stamp that a write in the same clock tick would leave unchanged proves nothing, nor does that of a write
        // whose event is still to come: a token with it would hide that write if this process ended before.
        settled = stamp.isIdentical(to: published) ? stamp.whenSettled : nil
        inspected = stamp
    }
}
