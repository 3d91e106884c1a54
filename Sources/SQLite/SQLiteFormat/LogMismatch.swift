import LinuxSystem
import SystemPackage

/// The proof that a write-ahead log is another database's.
///
/// Nothing in a database names its log: SQLite replays any valid log that lies beside it, even one that another file of
/// that name has left (https://sqlite.org/howtocorrupt.html, §1.4). But a log continues a certain state of one
/// database. While it exists, the database's file has that state, or holds pages that a checkpoint has copied from the
/// log, in any order and number. Each case contradicts both.
package enum LogMismatch: Equatable, Sendable, CustomStringConvertible {
    /// The pages have other sizes. SQLite never changes the size while a log exists.
    case pageSize(log: Int, database: Int)
    /// The database uses no log. SQLite removes a log before it turns write-ahead logging off.
    case rollbackMode
    /// The log relies on a page that neither it nor the database has.
    case missingPage(UInt32)
    /// The log's first version of page 1 doesn't continue the database's change counter.
    case changeCounter(log: UInt32, database: UInt32)
    /// The log's first version of page 1 has another encoding or schema, without a change of the schema.
    case schema
    /// The log's first commits leave the database's size as it is, but as another size.
    case pageCount(log: UInt32, database: UInt32)
    /// A page has another kind, and nothing in the log could have changed it.
    case pageKind(UInt32)

    package var description: String {
        switch self {
        case .pageSize(let log, let database): "its pages have \(log) bytes, and the database's \(database)"
        case .rollbackMode: "the database doesn't use a write-ahead log"
        case .missingPage(let page): "it relies on page \(page), which the database doesn't have"
        case .changeCounter(let log, let database):
            "it begins with change \(log), and the database's last one is \(database)"
        case .schema: "it continues a database with another schema"
        case .pageCount(let log, let database): "it continues a database of \(log) pages, and this one has \(database)"
        case .pageKind(let page): "its page \(page) is of another kind than the database's"
        }
    }

    /// Returns nil if the log may be the database's, or if it has no commit.
    ///
    /// - Parameters:
    ///   - size: The size of the database's file in bytes.
    ///   - read: Reads the database's file: at most that many bytes at an offset.
    package static func find(
        in log: borrowing Descriptor, path: FilePath, databaseSize size: Int64,
        _ read: (_ count: Int, _ offset: Int64) throws -> [UInt8]
    ) throws -> LogMismatch? {
        guard let start = WriteAheadLog.Start(try log.read(count: WriteAheadLog.headerLength, at: 0, path: path)),
            let header = DatabaseHeader(try read(DatabaseHeader.length, 0))
        else { return nil }
        let pageOne = PageOne(try read(header.pageSize, 0))
        let history = try LoggedPages(log, path: path, start, database: pageOne)
        guard history.size > 0 else { return nil }
        if start.pageSize != header.pageSize { return .pageSize(log: start.pageSize, database: header.pageSize) }
        if header.journalMode == .rollback { return .rollbackMode }
        let pages = UInt32(clamping: size / Int64(header.pageSize))
        if let missing = history.missingPage(beyond: pages, pageSize: header.pageSize) { return .missingPage(missing) }
        // From here on, the log's beginning is compared with the state before it. A checkpoint has replaced that.
        if history.hasDatabasesPageOne { return nil }
        if let first = history.firstPageOne, let mismatch = first.mismatch(after: pageOne) { return mismatch }
        if header.changeCounter == header.versionValidFor,
            let other = history.unchangedSizes.first(where: { $0 != header.pageCount })
        {
            return .pageCount(log: other, database: header.pageCount)
        }
        for page in history.unchangedPages.sorted() where page <= pages && page > 1 {
            guard let first = try read(1, Int64(page - 1) * Int64(header.pageSize)).first,
                history.kinds[page]?.isDisjoint(with: PageKinds(first)) == true
            else { continue }
            return .pageKind(page)
        }
        return nil
    }
}

/// The kinds that versions of a page have: those of b-trees (https://sqlite.org/fileformat2.html, §1.6), or any other.
private struct PageKinds: OptionSet {
    let rawValue: UInt8

    init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The kind of a page by its first byte.
    init(_ first: UInt8) {
        switch first {
        case 2: rawValue = 1
        case 5: rawValue = 2
        case 10: rawValue = 4
        case 13: rawValue = 8
        default: rawValue = 16
        }
    }
}

/// A version of a database's first page.
private struct PageOne {
    let bytes: [UInt8]

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var changeCounter: UInt32 { number(24) }

    private func number(_ offset: Int) -> UInt32 {
        bytes.count < offset + 4 ? 0 : bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }

    /// True if this is that version, but for the journal mode, which a relocation may have changed. Young databases
    /// often have equal headers, so the schema on the page counts too.
    func isEqual(to other: UnsafeRawBufferPointer) -> Bool {
        bytes.count >= DatabaseHeader.length && other.count == bytes.count
            && bytes[..<18].elementsEqual(other[..<18]) && bytes[20...].elementsEqual(other[20...])
    }

    /// Returns why this version, the log's first one, doesn't follow that one.
    ///
    /// A connection increments the counter that it read when it opened or refreshed its cache, so several commits may
    /// have one number (`pager_write_changecounter`, pager.c).
    func mismatch(after former: PageOne) -> LogMismatch? {
        guard changeCounter == former.changeCounter || changeCounter == former.changeCounter &+ 1 else {
            return .changeCounter(log: changeCounter, database: former.changeCounter)
        }
        let encodings = (number(56), former.number(56))
        let isEncoded = encodings.0 != 0 && encodings.1 != 0
        // The schema's first page is the rest of this one. Each change of it increments the schema cookie, except that
        // auto-vacuum moves the pages that it leads to.
        let mayMove = number(52) != 0
        if bytes.count != former.bytes.count || bytes[20] != former.bytes[20]
            || (isEncoded && encodings.0 != encodings.1)
            || number(40) < former.number(40)
            || (number(40) == former.number(40) && !mayMove && bytes[100...] != former.bytes[100...])
        {
            return .schema
        }
        return nil
    }
}

/// The pages in a log's commits.
private struct LoggedPages {
    /// The database's size in pages after the last commit; 0 without one.
    private(set) var size: UInt32 = 0
    private(set) var kinds: [UInt32: PageKinds] = [:]
    /// The pages in the commits before the first that writes page 1. Those neither add nor free a page, as page 1 has
    /// the size and the free list.
    private(set) var unchangedPages: Set<UInt32> = []
    /// The sizes in pages after those commits.
    private(set) var unchangedSizes: [UInt32] = []
    private(set) var firstPageOne: PageOne?
    /// True if the database has its page 1 from this log.
    private(set) var hasDatabasesPageOne = false

    init(
        _ log: borrowing Descriptor, path: FilePath, _ start: WriteAheadLog.Start, database: PageOne
    ) throws {
        var frames: Int64 = 0
        var transaction: [UInt32: PageKinds] = [:]
        var pageOne: PageOne?
        var isDatabasesPageOne = false
        try WriteAheadLog.forEachSizedFrame(log, path: path) { page, content, committedSize in
            frames += 1
            transaction[page, default: []].insert(PageKinds(content[0]))
            if page == 1 {
                if pageOne == nil, firstPageOne == nil { pageOne = PageOne(Array(content)) }
                if database.isEqual(to: content) { isDatabasesPageOne = true }
            }
            guard committedSize > 0 else { return true }
            firstPageOne = firstPageOne ?? pageOne
            if isDatabasesPageOne { hasDatabasesPageOne = true }
            if firstPageOne == nil {
                unchangedSizes.append(committedSize)
                unchangedPages.formUnion(transaction.keys)
            }
            kinds.merge(transaction) { $0.union($1) }
            size = committedSize
            transaction = [:]
            return true
        }
        // SQLite before 3.46 may leave frames without a salt, see `WALFrames.transactions`, which a checkpoint copies
        // and a recovery doesn't. Frames of the log's former session follow too.
        let length = Int64(WriteAheadLog.frameHeaderLength + start.pageSize)
        var offset = Int64(WriteAheadLog.headerLength) + frames * length
        while size > 0, !hasDatabasesPageOne {
            let frameHeader = try log.read(count: WriteAheadLog.frameHeaderLength, at: offset, path: path)
            guard frameHeader.count == WriteAheadLog.frameHeaderLength else { break }
            if frameHeader[..<4] == [0, 0, 0, 1] {
                let content = try log.read(
                    count: start.pageSize, at: offset + Int64(WriteAheadLog.frameHeaderLength), path: path)
                if content.withUnsafeBytes(database.isEqual) { hasDatabasesPageOne = true }
            }
            offset += length
        }
    }

    /// Returns the first page up to the last commit's size that is in neither of the two files.
    func missingPage(beyond pages: UInt32, pageSize: Int) -> UInt32? {
        guard pages < size else { return nil }
        // SQLite locks this page's bytes and stores nothing there (https://sqlite.org/fileformat2.html, §1.5).
        let lockPage = PageFormat.lockPage(pageSize: pageSize)
        return (pages + 1...size).first { $0 != lockPage && kinds[$0] == nil }
    }
}
