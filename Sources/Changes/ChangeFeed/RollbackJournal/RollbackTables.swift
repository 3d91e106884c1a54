import LinuxSystem
import SQLiteFormat

/// Determines the tables that commits in rollback mode changed: from the journals of their transactions if all of these
/// were held, else from the pages whose content differs, as far as those are digested.
///
/// It describes the store as it was read after a published commit, the last one or one before it. A write over the file
/// that isn't published yet may be in it. Journals name every page that may have changed on the way. Without them, only
/// of a single commit the pages that differ are all that it changed: two commits may change a table and change it back,
/// and a program may have read it in between.
struct RollbackTables {
    private var pageMap: PageMap
    /// Nil for a store that is too large for them.
    private var digests: PageDigests?
    /// Nil if journals can't be held.
    private let journals: JournalWatch?
    /// True if the journals that are held lead on from what is described.
    private var journalsLead: Bool
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

    /// The tables that the journals named last, and the change counter of the commit that they lead to: a poll for a
    /// commit that was already there then gets them too.
    private var lastJournaled: (names: Set<ExactName>, changeCounter: UInt32)?
    /// The tables of commits that `catchUp` has passed before they were published. They belong to the next change,
    /// whichever commits it stands for.
    private var unpublished: Set<ExactName> = []

    /// - Parameter journals: Begun before the store was read.
    init(_ pageMap: PageMap, _ digests: PageDigests?, _ journals: JournalWatch?, at changeCounter: UInt32) {
        (self.pageMap, self.digests, self.journals) = (pageMap, digests, journals)
        journalsLead = journals != nil
        self.changeCounter = changeCounter
    }

    /// Records a change that the change counter doesn't count.
    mutating func recordUncountedChange() { (changeCounter, lastJournaled) = (nil, nil) }

    /// Advances to the commit with this change counter, and returns the tables that differ. They are complete if it is
    /// the only commit on the way: each one increments the counter.
    ///
    /// - Parameter isLocked: True if the program that has committed still holds its lock. It writes the database only
    ///   while its journal is hot.
    /// - Throws: `Unattributable.disturbed`, and describes what it described, if somebody writes, or too little time
    ///   has passed. Any other error invalidates it.
    mutating func advance(to changeCounter: UInt32, in files: StoreFiles, isLocked: Bool) throws -> TableChanges {
        do {
            let journaled = try readJournals(to: changeCounter, in: files)
            var found = try journaled ?? compare(to: changeCounter, in: files, isLocked: isLocked)
            (isPublished, catchUpDue) = (true, nil)
            found.add(TableChanges(unpublished, isComplete: true))
            unpublished = []
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
            let found =
                try readJournals(to: changeCounter, in: files)
                ?? compare(to: changeCounter, in: files, isLocked: false)
            // What leads to the published commit was published with it, as unknown.
            if self.changeCounter != changeCounter { unpublished.formUnion(found.names) }
            isPublished = false
        } catch Unattributable.disturbed {}
    }

    // MARK: Journals

    /// The number of looks at a store that is written meanwhile, and the pause between them.
    private static let (looks, pauseBetweenLooks) = (4, Duration.microseconds(100))
    /// The length of journals that are read for one change, in bytes, and the number of pages: the thread of all stores
    /// reads them.
    private static let (maximumJournals, maximumPages) = (Int64(8 << 20), 4096)

    /// Advances by the journals that are held, and returns the tables whose pages they have. Returns nil if that isn't
    /// the way to the commit with this change counter.
    ///
    /// - Throws: `Unattributable.disturbed` while somebody writes: the journals wait. Any other error invalidates it.
    private mutating func readJournals(to changeCounter: UInt32, in files: StoreFiles) throws -> TableChanges? {
        guard journalsLead, let journals else { return nil }
        guard let finished = journals.finished else {
            journalsLead = false
            return nil
        }
        if finished.isEmpty {
            // The commit was there already when the journals were read last.
            guard let lastJournaled, lastJournaled.changeCounter == changeCounter else { return nil }
            return TableChanges(lastJournaled.names, isComplete: true)
        }
        let began = ContinuousClock.now
        guard began >= notBefore else { throw Unattributable.disturbed }
        guard let changed = try journaledPages(and: [], in: files) else { return nil }
        let names = try advance(changed)
        duration = began.duration(to: .now)
        notBefore = .now.advanced(by: duration * Self.shortRest)
        return TableChanges(names, isComplete: true)
    }

    /// The pages that lead to the state after some transactions.
    private struct Advance {
        let pages: ChangedPages
        let changeCounter: UInt32
        let journalCount: Int
    }

    private mutating func advance(_ found: Advance) throws -> Set<ExactName> {
        let names = try pageMap.apply(found.pages, found.pages.pages)
        try digests?.update(found.pages)
        journals?.drop(found.journalCount)
        (changeCounter, journalsLead) = (found.changeCounter, true)
        lastJournaled = (names, found.changeCounter)
        return names
    }

    /// Reads the pages that the transactions whose journals are held may have changed, and others. Returns nil if they
    /// aren't known, or are too many. Throws `Unattributable.disturbed` while somebody writes.
    private func journaledPages(and others: Set<UInt32>, in files: StoreFiles) throws -> Advance? {
        guard let journals, files.walIndex == nil, files.sharedIdentity == nil else { return nil }
        for look in 0..<Self.looks {
            if look > 0 { pause(Self.pauseBetweenLooks) }
            guard let held = journals.finished else { return nil }
            guard let header = try files.header(), header.journalMode == .rollback,
                header.pageSize == pageMap.format.pageSize, header.versionValidFor == header.changeCounter
            else { return nil }
            guard held.reduce(0, { $0 + $1.size }) <= Self.maximumJournals else { return nil }
            guard journals.isQuiet(after: held.count) else { continue }
            guard let pages = try pages(of: held, and: others, header, files) else { return nil }
            guard journals.isQuiet(after: held.count) else { continue }
            return Advance(pages: pages, changeCounter: header.changeCounter, journalCount: held.count)
        }
        guard journals.isProven else { return nil }
        throw Unattributable.disturbed
    }

    private func pages(
        of held: [JournalWatch.Held], and others: Set<UInt32>, _ header: DatabaseHeader, _ files: StoreFiles
    ) throws -> ChangedPages? {
        var (numbers, images): (Set<UInt32>, [UInt32: Int64]) = (others, [:])
        let isSingle = held.count == 1 && others.isEmpty
        // Pages that one transaction cuts off and another adds again aren't in a journal.
        var lowestCount = pageMap.pageCount
        for journal in held {
            guard let pages = try journal.pages(pageSize: header.pageSize) else { return nil }
            numbers.formUnion(pages.offsets.keys)
            // Of one transaction, the leaves were free before it. What isn't only looks like one.
            numbers.formUnion(isSingle ? pages.leaves.filter(pageMap.isFree) : pages.leaves)
            if isSingle { images = pages.offsets }
            lowestCount = min(lowestCount, pages.originalPageCount ?? lowestCount)
        }
        if lowestCount < header.pageCount { numbers.formUnion(lowestCount + 1...header.pageCount) }
        guard numbers.count <= Self.maximumPages else { return nil }
        let database = try files.openedDatabase()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 2 * header.pageSize, alignment: 8)
        defer { buffer.deallocate() }
        let page = UnsafeMutableRawBufferPointer(rebasing: buffer[..<header.pageSize])
        let image = UnsafeMutableRawBufferPointer(rebasing: buffer[header.pageSize...])
        let changed = ChangedPages(pageCount: header.pageCount, pageSize: header.pageSize)
        let lockPage = PageFormat.lockPage(pageSize: header.pageSize)
        for number in numbers.sorted() where number <= header.pageCount && number != lockPage {
            let offset = Int64(number - 1) * Int64(header.pageSize)
            guard try database.read(into: page, at: offset) == header.pageSize else { return nil }
            // What a transaction that was rolled back has written is as before.
            if let place = images[number], try held[0].file.read(into: image, at: place) == header.pageSize,
                UnsafeRawBufferPointer(page).hasSameBytes(as: UnsafeRawBufferPointer(image))
            {
                continue
            }
            try changed.append(number, UnsafeRawBufferPointer(page))
        }
        return changed
    }

    // MARK: Digests

    private mutating func compare(
        to changeCounter: UInt32, in files: StoreFiles, isLocked: Bool
    ) throws -> TableChanges {
        let began = ContinuousClock.now
        // Until this succeeds, journals that are held later lead on from something else.
        journalsLead = false
        guard let digests else { throw Unattributable.gap }
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
        journals?.begin()
        let stamp = try files.stamp()
        let isSettled = stamp.whenSettled != nil
        let changed = ChangedPages(pageCount: header.pageCount, pageSize: header.pageSize)
        let present = try PageDigests(
            try files.openedDatabase(), pageSize: header.pageSize, pageCount: header.pageCount, former: digests
        ) { try changed.append($0, $1) }
        // A transaction locks out readers before it writes the database, and increments the counter when it commits.
        // One that wrote pages early and was rolled back meanwhile has left no trace but the time of its writes, which
        // may be that of the commit: then the pages are read once more, because its pages would be others by now.
        guard try files.isUnwritten(since: changeCounter, isLocked: isLocked),
            try isSettled || present == Self.digests(of: files, header), try files.stamp() == stamp
        else {
            // The pages of transactions that came meanwhile are read again.
            guard let later = try journaledPages(and: Set(changed.pages), in: files) else {
                throw Unattributable.disturbed
            }
            return TableChanges(try advance(later), isComplete: false)
        }
        // A map that can't follow is of no use any more.
        let names = try pageMap.apply(changed, changed.pages)
        self.digests = present
        (self.changeCounter, lastJournaled) = (changeCounter, nil)
        journalsLead = journals?.isProven == true
        return TableChanges(names, isComplete: isNext)
    }

    /// True if the store is as it was at the last commit that was published. False if that isn't known.
    func isCurrent(in files: StoreFiles) throws -> Bool {
        guard isPublished, let digests, let header = try files.header(), header.pageSize == digests.pageSize,
            Int(header.pageCount) * header.pageSize <= PageDigests.maximumSize
        else { return false }
        return try digests == Self.digests(of: files, header)
    }

    private static func digests(of files: StoreFiles, _ header: DatabaseHeader) throws -> PageDigests {
        try PageDigests(try files.openedDatabase(), pageSize: header.pageSize, pageCount: header.pageCount)
    }
}
