import ChangeFeed
import Glibc
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// A store's shadow: the copy of its pages as of the last step, and the log of the steps that led there.
///
/// Steps are pending in memory until `flush`, which writes them together in this order: the pages that differ, to the
/// redo file; the steps, behind the end of the log; the head of the redo file, from which on the steps count; the copy;
/// the state. Whoever finds a head of the flush after the state's completes the last two. So a program that is killed
/// anywhere leaves the state before the pending steps or after them, and nobody is told of a step before that.
///
/// Nothing of this is synced step by step: the store's writer may not sync either, and a copy that is newer than the
/// store is no use. The state names the machine's start. After another start the shadow counts only if it was closed,
/// which syncs everything; else it is made anew, and whoever follows the store gets a reset. Each page has a checksum,
/// which is compared before anybody is told of a difference from the page.
package final class RowShadow {
    let slot: ShadowPlace.Slot
    private var directory: Directory { slot.directory }
    private let stateFile: OwnFile
    private let redo: OwnFile
    private var log: OwnFile
    /// Where steps were read last, the last one last: those who follow the log are at different places in it, and to
    /// find a step from the beginning of a log file takes as long as it has steps.
    private var cursors: [StepReader] = []
    private var state: ShadowState
    /// The state as of the last flush.
    private var flushed: ShadowState
    /// Writes the log, behind its last step.
    private var logWriter: BufferedWriter
    /// True while the head of the redo file may be that of the flush after `flushed`.
    private var isInDoubt = false
    private(set) var pages: ShadowPages

    /// The first step that the log's only reader hasn't had; nil if there are others. It stays in the log, and so do
    /// those after it.
    package var firstUnread: UInt64?
    var limits = Limits()

    private static let maximumCursors = 4
    /// The length of pending pages from which on they are written, in bytes.
    private static let maximumPending = 1 << 20

    /// The lengths of the log, in bytes.
    struct Limits {
        /// The length from which on the log continues in another file.
        var logFile: Int64 = 32 << 20
        /// The length of all log files from which on the oldest is removed.
        var log: Int64 = 256 << 20
    }

    package var epoch: UInt64 { state.epoch }
    /// The number of the last step.
    package var lastStep: UInt64 { state.step }
    /// The number of the last row of all steps.
    package var lastRow: UInt64 { state.row }
    /// The identity of the store's file as of the last step.
    package var identity: FileIdentity { state.identity }
    /// The directory's path.
    package var path: FilePath { directory.path }
    /// True if the directory still has its path.
    package var isInPlace: Bool { slot.isInPlace }
    /// The path of the copy: a database of the store's state as of the last step, without a log beside it, whatever its
    /// header says. Nobody writes it but this object.
    package var pagesPath: FilePath { directory.path.appending(ShadowName.pages) }
    /// A number that changes whenever the copy does, with or without a step. It counts for one epoch.
    package var revision: UInt64 { flushed.serial }

    /// SQLite's count of schema changes, as of the last step. Throws as `step(after:)`.
    package func schemaVersion() throws -> UInt32 { pages.pageCount == 0 ? 0 : try pages.withPage(1) { $0.word(40) } }

    /// The size of the copy in bytes.
    package var size: Int64 { Int64(state.pageCount) * Int64(state.pageSize) }

    // MARK: - Opening and making

    /// Opens the shadow in a slot, and completes an interrupted step. Returns nil if there is none that counts.
    init?(_ slot: ShadowPlace.Slot) throws {
        let directory = slot.directory
        self.slot = slot
        guard let bytes = try DurableFile.read(ShadowName.state, in: directory, limit: ShadowState.length),
            var state = ShadowState(bytes), state.boot == .current || state.isSynced
        else { return nil }
        (stateFile, redo) = (try OwnFile(ShadowName.state, in: directory), try OwnFile(ShadowName.redo, in: directory))
        if let interrupted = try Self.interrupted(redo, after: state) {
            let pages = try Self.openPages(directory, interrupted.state)
            try pages.apply(interrupted.pages)
            state = interrupted.state
            try stateFile.descriptor.write(state.bytes, at: 0, path: stateFile.path)
        }
        pages = try Self.openPages(directory, state)
        log = try OwnFile(ShadowName.log(state.logFile), in: directory)
        logWriter = BufferedWriter(log, at: state.logEnd, isRead: true)
        (self.state, flushed) = (state, state)
        let size = try directory.status(ShadowName.pages)?.size
        guard size == Int64(state.pageCount) * Int64(state.pageSize),
            try log.descriptor.status().size >= state.logEnd
        else { return nil }
    }

    /// Makes the shadow of a store in a slot, without its pages. It counts from `begin` on.
    init(_ slot: ShadowPlace.Slot, of store: FilePath) throws {
        let directory = slot.directory
        self.slot = slot
        try directory.removeShadow()
        try directory.record(store: store)
        state = ShadowState(
            epoch: UInt64.random(in: 1...UInt64.max >> 1), pageSize: 0, pageCount: 0,
            identity: FileIdentity(device: 0, inode: 0))
        (stateFile, redo) = (try OwnFile(ShadowName.state, in: directory), try OwnFile(ShadowName.redo, in: directory))
        log = try OwnFile(ShadowName.log(state.logFile), in: directory)
        logWriter = BufferedWriter(log, at: state.logEnd, isRead: true)
        flushed = state
        pages = try Self.openPages(directory, state, isNew: true)
    }

    /// Fills a new shadow with the pages of a view. They are of one state if the view is confirmed afterwards.
    ///
    /// - Parameters:
    ///   - limit: The size in bytes above which the store is only cloned, not copied.
    ///   - meanwhile: Called now and then.
    func fill(
        from view: StoreView, of store: FilePath, _ identity: FileIdentity, limit: Int64, meanwhile: () throws -> Void
    ) throws {
        let copy = try OwnFile(ShadowName.pages, in: directory)
        let size = Int64(view.pageCount) * Int64(view.pageSize)
        try copy.descriptor.truncate(to: 0, path: copy.path)
        let isCloned = view.clone(to: copy.descriptor)
        if !isCloned {
            if size > limit { throw RowShadowError.tooLarge(store, bytes: size) }
            try copy.requireSpace(for: UInt64(clamping: size))
        }
        try copy.descriptor.truncate(to: size, path: copy.path)
        (state.pageSize, state.pageCount, state.identity) = (view.pageSize, view.pageCount, identity)
        flushed = state
        pages = try Self.openPages(directory, state, isNew: true)
        try pages.fill(from: view, isCloned: isCloned, meanwhile: meanwhile)
    }

    /// Makes a copy count that has one state of the store. Throws `SystemError`.
    func begin() throws {
        try flush()
        try pages.seal()
        try writeState()
    }

    private static func openPages(
        _ directory: Directory, _ state: ShadowState, isNew: Bool = false
    ) throws(SystemError) -> ShadowPages {
        let sums = try OwnFile(ShadowName.sums, in: directory)
        return ShadowPages(
            try directory.openOwn(ShadowName.pages, flags: O_RDWR | O_CREAT, mode: 0o600),
            path: directory.path.appending(ShadowName.pages), pageSize: state.pageSize, pageCount: state.pageCount,
            sums: try PageSums(sums, pageCount: state.pageCount), isNew: isNew)
    }

    // MARK: - Steps

    private static let redoMagic: UInt64 = 0x0144_4552_5753_5347

    /// Begins the state after the next step.
    func stage(pageSize: Int, pageCount: UInt32) -> StagedPages {
        StagedPages(
            over: pageSize == pages.pageSize ? pages : nil, pageSize: pageSize, pageCount: pageCount, in: redo,
            willSpill: { [unowned self] in try flush() })
    }

    /// Adds a step, which is pending. `staged` must have been begun last, and be finished.
    ///
    /// - Parameters:
    ///   - kind: How the step is logged; nil if no table differs and nobody is to be told.
    ///   - difference: What the step changed in tables; nil for a gap.
    func advance(
        to staged: StagedPages, pageSize: Int, _ kind: LoggedStep.Kind?, _ difference: PageDifference?,
        _ encoding: PageFormat.Encoding, identity: FileIdentity
    ) throws {
        // The redo file has no place for the pages of two sizes.
        if pageSize != pages.pageSize { try staged.spill() }
        try staged.finish()
        var next = state
        (next.pageSize, next.pageCount, next.identity) = (pageSize, staged.pageCount, identity)
        (next.boot, next.isSynced, next.serial) = (.current, false, flushed.serial + 1)
        if let kind {
            do { try log(kind, difference, to: staged, encoding, &next) } catch {
                logWriter.cut(to: state.logEnd)
                throw error
            }
        }
        if staged.isSpilled {
            try write(next, pageCount: staged.count) {
                if pageSize != pages.pageSize { pages = try Self.openPages(directory, next) }
                try pages.apply(staged)
            }
        } else {
            try pages.adopt(staged)
            state = next
            if pages.pendingLength >= Self.maximumPending { try flush() }
        }
    }

    /// Appends a step to the log.
    private func log(
        _ kind: LoggedStep.Kind, _ difference: PageDifference?, to staged: StagedPages,
        _ encoding: PageFormat.Encoding, _ next: inout ShadowState
    ) throws {
        var writer = try StepWriter(logWriter, of: log)
        for table in difference?.tables ?? [] {
            guard let logged = LoggedTable(table) else { continue }
            try writer.add(logged)
            try difference?.forEachRow(of: table, from: pages, to: staged) {
                try writer.addRow($0, before: $1, after: $2)
            }
        }
        next.step += 1
        next.row += try writer.finish(
            kind, number: next.step, firstRow: state.row + 1, time: Self.now, encoding,
            schemaVersion: staged.pageCount == 0 ? 0 : staged.withPage(1) { $0.word(40) })
        next.logEnd = logWriter.end
    }

    /// Writes the pending steps. They count for other processes, and after a kill, from then on.
    ///
    /// Throws `RowShadowError` and `SystemError`. Call `abandonSteps` then.
    func flush() throws {
        if isInDoubt { try settle() }
        guard state != flushed else { return }
        let writer = BufferedWriter(redo, at: StagedPages.headLength)
        var count = 0
        try pages.forEachPending { number, bytes in
            count += 1
            try withUnsafeBytes(of: UInt64(number)) { try writer.append($0) }
            try writer.append(bytes)
        }
        try writer.flush()
        try write(state, pageCount: count) { try pages.writePending() }
    }

    /// Makes a state count whose pages are in the redo file, and whose steps the log's writer has. `apply` brings the
    /// copy to it.
    private func write(_ next: ShadowState, pageCount: Int, _ apply: () throws -> Void) throws {
        try logWriter.flush()
        if flushed.isSynced {
            flushed.isSynced = false
            try stateFile.descriptor.write(flushed.bytes, at: 0, path: stateFile.path)
            try stateFile.descriptor.synchronize(path: stateFile.path)
        }
        var head: [UInt8] = []
        for word in [Self.redoMagic, UInt64(pageCount)] {
            withUnsafeBytes(of: word.littleEndian) { head.append(contentsOf: $0) }
        }
        head += next.bytes
        isInDoubt = true
        try redo.descriptor.write(head, at: 0, path: redo.path)
        try apply()
        state = next
        try writeState()
        isInDoubt = false
        // The copy has its pages, and the state says so.
        if pageCount * pages.pageSize > 16 << 20 { try redo.descriptor.truncate(to: 0, path: redo.path) }
        if state.logEnd >= limits.logFile { try rotateLog() }
    }

    /// Returns the step that a redo file completes, if it is the one after the state.
    private static func interrupted(
        _ redo: OwnFile, after state: ShadowState
    ) throws -> (state: ShadowState, pages: StagedPages)? {
        let head = try redo.descriptor.read(count: 16 + ShadowState.length, at: 0, path: redo.path)
        guard head.count == 16 + ShadowState.length, let next = ShadowState(Array(head[16...])),
            head.withUnsafeBytes({ UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }) == redoMagic,
            next.epoch == state.epoch, next.serial == state.serial + 1
        else { return nil }
        let count = head.withUnsafeBytes { UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self)) }
        let pages = try StagedPages(
            count: Int(count), pageSize: next.pageSize, pageCount: next.pageCount, of: redo)
        return (next, pages)
    }

    private func writeState() throws(SystemError) {
        try stateFile.descriptor.write(state.bytes, at: 0, path: stateFile.path)
        flushed = state
    }

    /// Drops the pending steps, and gives back the space of those that can't be written. They didn't happen, unless the
    /// head of the redo file is written: then it completes them. Throws `RowShadowError` and `SystemError`.
    func abandonSteps() throws {
        if isInDoubt { return try settle() }
        drop(to: flushed)
        try redo.descriptor.truncate(to: 0, path: redo.path)
        try log.descriptor.truncate(to: state.logEnd, path: log.path)
    }

    private func drop(to known: ShadowState) {
        state = known
        logWriter.cut(to: state.logEnd)
        pages.dropPending()
    }

    /// Completes the flush that failed after its head may have been written, or drops its steps.
    private func settle() throws {
        if let interrupted = try Self.interrupted(redo, after: flushed) {
            if interrupted.state.pageSize != pages.pageSize {
                pages = try Self.openPages(directory, interrupted.state)
            }
            try pages.apply(interrupted.pages)
            drop(to: interrupted.state)
            try writeState()
        } else {
            drop(to: flushed)
        }
        isInDoubt = false
    }

    private static var now: Double {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// Reads the whole copy. Throws `RowShadowError.damaged` if a page isn't what was written, and `SystemError`.
    package func verify() throws {
        try flush()
        try pages.verify()
    }

    /// Syncs everything, so that the shadow counts after another start of the machine. Throws `SystemError`.
    package func close() throws {
        try flush()
        try pages.synchronize()
        try log.descriptor.synchronize(path: log.path)
        state.isSynced = true
        try writeState()
        try stateFile.descriptor.synchronize(path: stateFile.path)
    }

    // MARK: - The log

    private func rotateLog() throws {
        let next = try OwnFile(ShadowName.log(state.step + 1), in: directory)
        (state.logFile, state.logEnd) = (state.step + 1, 0)
        (log, logWriter) = (next, BufferedWriter(next, at: 0, isRead: true))
        try writeState()
        var files = try logFiles()
        var length = try files.reduce(Int64(0)) { try $0 + (directory.status(ShadowName.log($1))?.size ?? 0) }
        // A step that is longer than the log may be is told all the same. The step before it proves its reader's token.
        let kept = min(state.step, max(firstUnread ?? .max, 2) - 1)
        while length > limits.log, files.count > 1, files[1] <= kept {
            let name = ShadowName.log(files.removeFirst())
            length -= try directory.status(name)?.size ?? 0
            try directory.removeFile(name)
        }
    }

    /// The numbers of the first steps of the log files, ascending.
    private func logFiles() throws(SystemError) -> [UInt64] {
        try directory.names().compactMap(ShadowName.firstStep).sorted()
    }

    /// The number of the first step in the log; nil if it has no file.
    package func firstStep() throws(SystemError) -> UInt64? { try logFiles().first }

    /// Returns the reader of the step after that one; nil if it was the last. Throws `RowShadowError.damaged`.
    package func step(after number: UInt64) throws -> StepReader? {
        guard number < state.step else { return nil }
        let reader = try knownStep(number + 1) ?? findStep(number + 1)
        // Whoever was at the step before has gone on.
        cursors.removeAll { $0.step.number == number || $0.step.number == number + 1 }
        cursors.append(reader)
        if cursors.count > Self.maximumCursors { cursors.removeFirst() }
        return reader
    }

    /// Returns the reader of a step that was read, or that follows on one.
    private func knownStep(_ number: UInt64) -> StepReader? {
        if let known = cursors.first(where: { $0.step.number == number }) { return known }
        guard let former = cursors.first(where: { $0.step.number + 1 == number }),
            let next = try? former.following(), next.step.number == number
        else { return nil }
        return next
    }

    /// Returns the reader of a step from the beginning of its log file, or from a step that was read there.
    private func findStep(_ number: UInt64) throws -> StepReader {
        guard let first = try logFiles().last(where: { $0 <= number }) else { throw RowShadowError.damaged(path) }
        let near = cursors.filter { first <= $0.step.number && $0.step.number < number }
        var reader =
            try near.max { $0.step.number < $1.step.number }
            ?? StepReader(first == state.logFile ? log : OwnFile(ShadowName.log(first), in: directory), at: 0)
        while reader.step.number < number { reader = try reader.following() }
        guard reader.step.number == number else { throw RowShadowError.damaged(path) }
        return reader
    }
}
