import ChangeFeed
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// What is in a shadow's directory. It is found without a lock and without a write: a program may use it meanwhile.
package struct ShadowReport: Sendable {
    /// Whether the copy has the store's present state.
    package enum Agreement: Sendable, Equatable {
        case agrees
        /// The number of pages that differ, or that only one of them has.
        case differs(pages: Int)
        /// The store can't be read now, or there is none.
        case unknown
    }

    /// What the log has.
    package struct Log: Sendable, Equatable {
        package fileprivate(set) var steps: UInt64 = 0
        package fileprivate(set) var rows: UInt64 = 0
        /// The rows that were deleted and whose values are in the log.
        package fileprivate(set) var deletedRows: UInt64 = 0
        package fileprivate(set) var first: LoggedStep?
        package fileprivate(set) var last: LoggedStep?
    }

    /// The directory.
    package let path: FilePath
    /// The size of the copy in bytes.
    package let size: Int64
    /// The size in bytes of the files of the log, and of the one with the pages of the step that was written last.
    package let logSize: Int64
    /// The number in the shadow's tokens; nil if it doesn't count, and is made anew by the next program.
    package let epoch: UInt64?
    package let log: Log
    package let agreement: Agreement
    /// True if a program uses the shadow.
    package let isUsed: Bool
    /// The number and the name of that program, as it has noted them.
    package let user: String?

    /// Returns nil if the directory has no file of a shadow. Throws `SystemError` and `RowShadowError.damaged`.
    init?(_ directory: Directory, of store: FilePath) throws {
        path = directory.path
        var (size, logSize, isEmpty) = (Int64(0), Int64(0), true)
        for name in try directory.names() where ShadowName.isOwn(name) {
            isEmpty = false
            let bytes = try directory.status(name)?.size ?? 0
            if name == ShadowName.pages {
                size = bytes
            } else if ![ShadowName.state, ShadowName.sums, ShadowName.store].contains(name) {
                logSize += bytes
            }
        }
        guard !isEmpty else { return nil }
        (self.size, self.logSize) = (size, logSize)
        // The lock's file is of the user, and so is the note.
        isUsed = try directory.isShadowUsed()
        let note = OpenFileLock.note(ShadowName.lock, in: directory)
        user = isUsed && !note.isEmpty ? String(decoding: note, as: UTF8.self) : nil
        guard let steps = try LoggedSteps.open(directory) else {
            (epoch, log, agreement) = (nil, Log(), .unknown)
            return
        }
        epoch = steps.epoch
        log = try Self.counts(of: steps)
        agreement = try Self.agreement(directory, store, isUsed: isUsed)
    }

    private static func counts(of steps: LoggedSteps) throws -> Log {
        var log = Log()
        try steps.forEach { reader in
            log.steps += 1
            log.rows += reader.step.rowCount
            log.deletedRows += try reader.deletedRowCount()
            log.first = log.first ?? reader.step
            log.last = reader.step
            return true
        }
        return log
    }

    /// Compares the copy with the store. A program that uses it may be about to bring it to the store's state.
    private static func agreement(_ directory: Directory, _ store: FilePath, isUsed: Bool) throws -> Agreement {
        guard let file = store.lastComponent, let name = StoreName(file) else { return .unknown }
        let place = store.removingLastComponent()
        let hasExactTimes = FileTimes.areExact(in: place)
        let deadline = Deadline(after: .seconds(2))
        var found = Agreement.unknown
        var isRepeated = false
        repeat {
            if isRepeated { pause(.milliseconds(20)) }
            isRepeated = true
            guard let files = try StoreFiles.current(place, name, unless: nil),
                let state = try ShadowState.current(in: directory)
            else { return .unknown }
            defer { files.closeDatabase() }
            let pages = ShadowPages(
                try directory.openOwn(ShadowName.pages, flags: O_RDONLY),
                path: directory.path.appending(ShadowName.pages),
                pageSize: state.pageSize, pageCount: state.pageCount, sums: nil, isNew: false)
            do {
                _ = try files.refreshIndex(finalRead: {}, changed: { _ in })
                guard let view = try StoreView(files, path: store, hasExactTimes: hasExactTimes) else { continue }
                var count = Int(state.pageCount) - Int(min(view.pageCount, state.pageCount))
                try view.forEachDifference(from: pages) { _, _ in count += 1 }
                guard try view.isConfirmed(), try ShadowState.current(in: directory) == state else { continue }
                if count == 0 { return .agrees }
                found = .differs(pages: count)
                if !isUsed { return found }
            } catch is Disturbed {}
        } while !deadline.hasPassed
        return found
    }
}

extension ShadowPlace {
    /// Returns what is in each shadow of a store.
    ///
    /// Throws `SystemError` and `RowShadowError`.
    package func reports(of store: FilePath) throws -> [ShadowReport] {
        try directories().compactMap { try ShadowReport($0, of: store) }
    }
}
