import LinuxSystem
import SQLiteFormat

/// Determines the tables that commits in rollback mode changed, from the pages whose content differs.
///
/// It describes the store as it was read after a published commit, the last one or one before it. A write over the file
/// that isn't published yet may be in it. Only of a single commit the pages that differ are all that it changed: two
/// commits may change a table and change it back, and a program may have read it in between.
struct RollbackTables {
    private var pageMap: PageMap
    private var digests: PageDigests
    /// The change counter of the described commit; nil if others may have followed that it doesn't count.
    private var changeCounter: UInt32?
    /// The time before which no commit's pages are compared.
    private(set) var notBefore = ContinuousClock.now
    /// The time of the last comparison, which limits how soon others follow.
    private var duration = Duration.zero
    /// The time to compare the pages although no commit followed, because the last one wasn't compared. Nil if it was.
    private(set) var catchUpDue: ContinuousClock.Instant?
    /// True if what is described was read for a commit that was published then. Otherwise a write that isn't published
    /// yet may be in it.
    private var isPublished = false

    /// The pauses between comparisons, in durations of the last one. A store whose changes can't be complete takes at
    /// most a fifth of a processor, another one half of it.
    private static let (shortRest, longRest) = (1, 4)

    init(_ pageMap: PageMap, _ digests: PageDigests, at changeCounter: UInt32) {
        self.pageMap = pageMap
        self.digests = digests
        self.changeCounter = changeCounter
    }

    /// Records a change that the change counter doesn't count.
    mutating func recordUncountedChange() { changeCounter = nil }

    /// Advances to the commit with this change counter, and returns the tables that differ. They are complete if it is
    /// the only commit on the way: each one increments the counter.
    ///
    /// - Parameter isLocked: True if the program that has committed still holds its lock. It writes the database only
    ///   while its journal is hot.
    /// - Throws: `Unattributable.disturbed`, and describes what it described, if somebody writes, or too little time
    ///   has passed. Any other error invalidates it.
    mutating func advance(to changeCounter: UInt32, in files: StoreFiles, isLocked: Bool) throws -> TableChanges {
        do {
            let found = try compare(to: changeCounter, in: files, isLocked: isLocked)
            (isPublished, catchUpDue) = (true, nil)
            return found
        } catch Unattributable.disturbed {
            // Later than others may follow, so that a store that is written all the time isn't compared in between.
            catchUpDue = .now.advanced(by: duration * Self.longRest)
            throw Unattributable.disturbed
        }
    }

    /// Compares the pages although no commit followed, so that the tables of the next one can be complete. It does
    /// nothing if somebody writes: the end of that leads to the next comparison.
    ///
    /// - Throws: An error that invalidates it.
    mutating func catchUp(to changeCounter: UInt32, in files: StoreFiles) throws {
        catchUpDue = nil
        do {
            _ = try compare(to: changeCounter, in: files, isLocked: false)
            isPublished = false
        } catch Unattributable.disturbed {}
    }

    private mutating func compare(
        to changeCounter: UInt32, in files: StoreFiles, isLocked: Bool
    ) throws -> TableChanges {
        let began = ContinuousClock.now
        guard began >= notBefore, try files.isUnwritten(since: changeCounter, isLocked: isLocked),
            let header = try files.header()
        else { throw Unattributable.disturbed }
        let isNext = self.changeCounter.map { $0 &+ 1 == changeCounter } ?? false
        defer {
            duration = began.duration(to: .now)
            notBefore = .now.advanced(by: duration * (isNext ? Self.shortRest : Self.longRest))
        }
        guard header.pageSize == digests.pageSize else { throw Unattributable.formatChanged }
        guard Int(header.pageCount) * header.pageSize <= PageDigests.maximumSize else { throw Unattributable.tooLarge }
        let stamp = try files.stamp()
        let isSettled = stamp.whenSettled != nil
        let changed = ChangedPages(pageCount: header.pageCount, pageSize: header.pageSize)
        let present = try PageDigests(
            try files.openedDatabase(), pageSize: header.pageSize, pageCount: header.pageCount, former: digests
        ) { try changed.append($0, $1) }
        // A transaction locks out readers before it writes the database, and increments the counter when it commits.
        guard try files.isUnwritten(since: changeCounter, isLocked: isLocked) else { throw Unattributable.disturbed }
        // One that wrote pages early and was rolled back meanwhile has left no trace but the time of its writes, which
        // may be that of the commit: then the pages are read once more, because its pages would be others by now.
        guard
            try isSettled || present == Self.digests(of: files, header), try files.stamp() == stamp
        else { throw Unattributable.disturbed }
        // A map that can't follow is of no use any more.
        let names = try pageMap.apply(changed, changed.pages)
        digests = present
        self.changeCounter = changeCounter
        return TableChanges(names, isComplete: isNext)
    }

    /// True if the store is as it was at the last commit that was published. False if that isn't known.
    func isCurrent(in files: StoreFiles) throws -> Bool {
        guard isPublished, let header = try files.header(), header.pageSize == digests.pageSize,
            Int(header.pageCount) * header.pageSize <= PageDigests.maximumSize
        else { return false }
        return try digests == Self.digests(of: files, header)
    }

    private static func digests(of files: StoreFiles, _ header: DatabaseHeader) throws -> PageDigests {
        try PageDigests(try files.openedDatabase(), pageSize: header.pageSize, pageCount: header.pageCount)
    }
}

/// The pages that differ between two states of a store.
private final class ChangedPages: PageSource {
    let pageCount: UInt32
    private let pageSize: Int
    private(set) var pages: [UInt32] = []
    private var offsets: [UInt32: Int] = [:]
    private var content: UnsafeMutableRawBufferPointer

    init(pageCount: UInt32, pageSize: Int) {
        self.pageCount = pageCount
        self.pageSize = pageSize
        content = .allocate(byteCount: pageSize * 16, alignment: 8)
    }

    deinit { content.deallocate() }

    func append(_ page: UInt32, _ bytes: UnsafeRawBufferPointer) throws {
        let offset = pages.count * pageSize
        if offset + pageSize > content.count {
            let larger = UnsafeMutableRawBufferPointer.allocate(byteCount: content.count * 2, alignment: 8)
            larger.copyMemory(from: UnsafeRawBufferPointer(content))
            content.deallocate()
            content = larger
        }
        UnsafeMutableRawBufferPointer(rebasing: content[offset..<offset + pageSize]).copyMemory(from: bytes)
        pages.append(page)
        offsets[page] = offset
    }

    func isChanged(_ page: UInt32) -> Bool { offsets[page] != nil }

    func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
        guard let offset = offsets[page] else { throw Unattributable.malformed(page: page) }
        return UnsafeRawBufferPointer(rebasing: content[offset..<offset + pageSize])
    }
}
