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
        guard let header = try files.header() else { return .unknown }
        guard journals.isQuiet(after: held.count) else { return journals.isProven ? .disturbed : .unknown }
        guard header.journalMode == .rollback, header.pageSize == pageSize,
            header.pageCount > 0, header.versionValidFor == header.changeCounter
        else { return .unknown }
        var transactions: [Transaction] = []
        for journal in held {
            let size = try journal.status().size
            let read: (Int, Int64) throws(SystemError) -> [UInt8] = { (count, offset) throws(SystemError) in
                try journal.read(count: count, at: offset)
            }
            guard let pages = try JournaledPages(pageSize: pageSize, size: size, read) else { return .unknown }
            transactions.append(Transaction(pages: pages, journal: journal))
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
        let database = try files.openedDatabase()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: pageSize, alignment: 8)
        defer { buffer.deallocate() }
        let bytes = UnsafeRawBufferPointer(buffer)
        /// True if the shadow has the bytes of the buffer.
        func isKnown(_ page: UInt32) throws -> Bool {
            try shadow.pages.withPage(page) { $0.hasSameBytes(as: bytes) }
        }
        // The journal begins with the shadow's state, or something else has written the store.
        for (page, offset) in pages.offsets {
            guard try transaction.journal.read(into: buffer, at: offset) == pageSize, try isKnown(page) else {
                return nil
            }
        }
        let staged = shadow.stage(pageSize: pageSize, pageCount: count)
        let lockPage = UInt32(0x4000_0000 / pageSize) + 1
        // Leaves of a transaction that was rolled back have what it wrote there.
        var numbers = isCommit ? pages.leaves.union(pages.offsets.keys) : Set(pages.offsets.keys)
        if shadow.pages.pageCount < count { numbers.formUnion(shadow.pages.pageCount + 1...count) }
        for page in numbers.sorted() where page <= count && page != lockPage {
            guard try read(page, into: buffer, before: later, database) else { return nil }
            if page > shadow.pages.pageCount { try staged.add(page, bytes) } else if try !isKnown(page) {
                try staged.add(page, bytes)
            }
        }
        try staged.finish()
        return staged
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
