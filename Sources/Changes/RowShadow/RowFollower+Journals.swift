import ChangeFeed
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// Steps in rollback mode: each transaction whose journal was held is one.
extension RowFollower {
    enum JournalReading {
        /// The shadow has all that was committed.
        case all
        /// A transaction is writing the store. Try again soon.
        case disturbed
        /// A comparison must tell what happened.
        case unknown
    }

    private struct Transaction {
        let pages: JournaledPages
        let journal: SharedDescriptor
    }

    /// Applies the transactions whose journals were held.
    ///
    /// The journals of all transactions since the shadow's state follow each other by the change counter: each commit
    /// increments it, and a transaction that was rolled back doesn't. What a page held between two transactions is in
    /// the journal of the next one that changed it, or else still in the database.
    func readJournals(_ files: StoreFiles) throws -> JournalReading {
        guard let journals, files.walIndex == nil, files.sharedIdentity == nil else { return .unknown }
        guard let held = journals.finished, !held.isEmpty || journals.hasSeenTransaction else { return .unknown }
        let pageSize = shadow.pages.pageSize
        let found = try header(files, pageSize: pageSize)
        guard journals.isQuiet(after: held.count) else { return journals.isProven ? .disturbed : .unknown }
        guard let header = found else { return .unknown }
        var transactions: [Transaction] = []
        for journal in held {
            guard let pages = try journal.pages(pageSize: pageSize) else { return .unknown }
            transactions.append(Transaction(pages: pages, journal: journal.file))
        }
        // One that has not changed page 1 was rolled back.
        var counters = [header.changeCounter]
        var pageCounts = [header.pageCount]
        for transaction in transactions.reversed() {
            counters.insert(transaction.pages.changeCounter ?? counters[0], at: 0)
            pageCounts.insert(transaction.pages.originalPageCount ?? pageCounts[0], at: 0)
        }
        guard zip(counters, counters.dropFirst()).allSatisfy({ $1 == $0 || $1 == $0 &+ 1 }) else { return .unknown }
        let present = try shadow.pages.withPage(1) { $0.word(24) }
        // The comparison that made the shadow's state may have included the first ones.
        guard let first = counters.firstIndex(of: present) else { return .unknown }
        journals.drop(first)
        for (index, transaction) in transactions.enumerated().dropFirst(first) {
            let later = Later(
                transactions: Array(transactions[(index + 1)...]), pageCounts: Array(pageCounts[(index + 1)...]))
            let isCommit = counters[index + 1] != counters[index]
            let staged = try stage(transaction, isCommit: isCommit, before: later, files)
            guard journals.isQuiet(after: transactions.count - index) else {
                return journals.isProven ? .disturbed : .unknown
            }
            // What wasn't committed has left no trace.
            guard let staged, isCommit || staged.isEmpty && staged.pageCount == shadow.pages.pageCount else {
                return .unknown
            }
            if isCommit { try step(to: staged, pageSize: pageSize, .exact, files.identity) }
            journals.drop(1)
        }
        return .all
    }

    /// Returns the database's header if it is in rollback mode and tells the size in pages.
    private func header(_ files: StoreFiles, pageSize: Int) throws -> DatabaseHeader? {
        guard let header = try files.header(), header.journalMode == .rollback, header.pageSize == pageSize,
            header.pageCount > 0, header.versionValidFor == header.changeCounter
        else { return nil }
        return header
    }

    /// Stages pages that were read while transactions wrote the store: those that differed, and those of each
    /// transaction since `JournalWatch.begin`. Returns nil if they aren't known, or the store never rests.
    func stageAgain(_ former: StagedPages, _ files: StoreFiles) throws -> StagedPages? {
        guard let journals, files.walIndex == nil, files.sharedIdentity == nil else { return nil }
        let pageSize = former.pageSize
        var numbers = Set(former.numbers)
        // Pages that one transaction cuts off and another adds again aren't in a journal.
        var lowestCount = former.pageCount
        for _ in 0..<20 {
            guard let held = journals.finished else { return nil }
            for journal in held {
                guard let pages = try journal.pages(pageSize: pageSize) else { return nil }
                numbers.formUnion(pages.offsets.keys)
                numbers.formUnion(pages.leaves)
                lowestCount = min(lowestCount, pages.originalPageCount ?? lowestCount)
            }
            journals.drop(held.count)
            guard let header = try header(files, pageSize: pageSize) else { return nil }
            if lowestCount < header.pageCount { numbers.formUnion(lowestCount + 1...header.pageCount) }
            let database = try files.openedDatabase()
            let staged = try stage(numbers, pageSize: pageSize, pageCount: header.pageCount) { page, buffer in
                try database.read(into: buffer, at: Int64(page - 1) * Int64(pageSize)) == pageSize
            }
            if let staged, journals.isQuiet(after: 0) { return staged }
            pause(.microseconds(500))
        }
        return nil
    }

    /// Stages those of the pages that differ from the shadow's. Returns nil if `read` returns false.
    private func stage(
        _ numbers: Set<UInt32>, pageSize: Int, pageCount: UInt32,
        _ read: (UInt32, UnsafeMutableRawBufferPointer) throws -> Bool
    ) throws -> StagedPages? {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: pageSize, alignment: 8)
        defer { buffer.deallocate() }
        let bytes = UnsafeRawBufferPointer(buffer)
        let staged = shadow.stage(pageSize: pageSize, pageCount: pageCount)
        let lockPage = PageFormat.lockPage(pageSize: pageSize)
        for page in numbers.sorted() where page <= pageCount && page != lockPage {
            guard try read(page, buffer) else { return nil }
            if try isKnown(page, bytes) { shadow.pages.confirm(page, bytes) } else { try staged.add(page, bytes) }
        }
        try staged.finish()
        return staged
    }

    /// True if the shadow has these bytes.
    private func isKnown(_ page: UInt32, _ bytes: UnsafeRawBufferPointer) throws -> Bool {
        guard page <= shadow.pages.pageCount, shadow.pages.pageSize == bytes.count else { return false }
        return try shadow.pages.withPage(page) { $0.hasSameBytes(as: bytes) }
    }

    /// The transactions after a state, and the sizes in pages of that state and those after them.
    private struct Later {
        let transactions: [Transaction]
        let pageCounts: [UInt32]
    }

    /// Stages what a transaction changed. Returns nil if that isn't known.
    private func stage(
        _ transaction: Transaction, isCommit: Bool, before later: Later, _ files: StoreFiles
    ) throws -> StagedPages? {
        let (pages, pageSize, count) = (transaction.pages, shadow.pages.pageSize, later.pageCounts[0])
        guard pages.originalPageCount ?? shadow.pages.pageCount == shadow.pages.pageCount else { return nil }
        // The journal begins with the shadow's state, or something else has written the store.
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: pageSize, alignment: 8)
        defer { buffer.deallocate() }
        for (page, offset) in pages.offsets {
            guard try transaction.journal.read(into: buffer, at: offset) == pageSize,
                try isKnown(page, UnsafeRawBufferPointer(buffer))
            else { return nil }
        }
        // Leaves of a transaction that was rolled back have what it wrote there.
        var numbers = isCommit ? pages.leaves.union(pages.offsets.keys) : Set(pages.offsets.keys)
        if shadow.pages.pageCount < count { numbers.formUnion(shadow.pages.pageCount + 1...count) }
        let database = try files.openedDatabase()
        return try stage(numbers, pageSize: pageSize, pageCount: count) {
            try read($0, into: $1, before: later, database)
        }
    }

    /// Reads a page as it was before later transactions. Returns false if its content isn't known: one that a
    /// transaction frees and another takes, or that lay beyond an end, isn't in a journal.
    private func read(
        _ page: UInt32, into buffer: UnsafeMutableRawBufferPointer, before later: Later, _ database: SharedDescriptor
    ) throws -> Bool {
        for (index, transaction) in later.transactions.enumerated() {
            if let offset = transaction.pages.offsets[page] {
                return try transaction.journal.read(into: buffer, at: offset) == buffer.count
            }
            if transaction.pages.leaves.contains(page) || page > later.pageCounts[index + 1] { return false }
        }
        return try database.read(into: buffer, at: Int64(page - 1) * Int64(buffer.count)) == buffer.count
    }
}
