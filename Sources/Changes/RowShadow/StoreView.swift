import ChangeFeed
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The pages of a store as of one commit, read while other programs may write it. No lock is taken and nothing is
/// written, so what was read counts only once `isConfirmed()` has returned true.
///
/// - In WAL mode the pages are those of the log up to the last commit that the wal-index reports, and else those of the
///   database. The log stays as it is until it is restarted, and a checkpoint copies to the database what the log has;
///   the index shows both.
/// - Without a wal-index, nobody has a store in WAL mode open. What a killed program left in the log counts as far as
///   its checksums are right, as it does for SQLite. An index that nobody uses and that isn't the log's, because a
///   program was killed or the log was removed, counts as none: SQLite makes it anew.
/// - In rollback mode, the change counter, the journal, the lock and the file's times show a write.
final class StoreView {
    /// The size in pages.
    let pageCount: UInt32
    /// The length of a page in bytes; 0 for an empty database.
    let pageSize: Int
    /// The wal-index at the commit; nil if there is none.
    let index: WriteAheadIndex?

    private let files: StoreFiles
    private let database: SharedDescriptor
    private let log: WALFile?
    /// The last frame of each page in the log.
    private let frames: [UInt32: UInt32]
    private let stamp: StoreFiles.Stamp
    private let logStamp: StoreFiles.Stamp?
    private let changeCounter: UInt32?

    /// Looks at a store. Returns nil if it can't be read now, because a program locks out readers, writes it, or leaves
    /// an index that is being created. Throws `RowShadowError.unreadable` for what isn't a database.
    ///
    /// - Parameter hasExactTimes: True if each write leaves another time (`FileTimes`). Else a file that was written
    ///   just now can't be read.
    init?(_ files: StoreFiles, path: FilePath, hasExactTimes: Bool) throws {
        self.files = files
        database = try files.openedDatabase()
        stamp = try files.stamp()
        logStamp = try files.walStamp()
        guard !files.isLockedExclusively() else { return nil }
        let header = try files.header()
        changeCounter = header?.changeCounter
        if header == nil, stamp.size > 0 { throw RowShadowError.unreadable(path) }
        let found = try files.readIndex()
        if header?.journalMode == .rollback || header == nil && files.walIndex == nil {
            guard try !files.isJournalHot(), hasExactTimes || stamp.whenSettled != nil else { return nil }
            (index, log, frames) = (nil, nil, [:])
        } else if let found, found.lastFrame == 0 {
            (index, log, frames) = (found, nil, [:])
        } else if let found, let log = try Self.log(of: found, in: files) {
            let listed = try Self.frames(upTo: found, in: log)
            (pageSize, pageCount) = (found.pageSize, listed.pageCount)
            (index, self.log, frames) = (found, log, listed.frames)
            return
        } else {
            guard files.isUnused else { return nil }
            index = nil
            let isSettled = stamp.whenSettled != nil && logStamp.map { $0.whenSettled != nil } ?? true
            guard hasExactTimes || isSettled else { return nil }
            if logStamp?.size ?? 0 > 0, let log = try files.openWAL(reopening: true) {
                let listed = try Self.abandonedFrames(files, path: path)
                if listed.pageCount > 0 {
                    (pageSize, pageCount, frames) = (listed.pageSize, listed.pageCount, listed.frames)
                    self.log = log
                    return
                }
            }
            (log, frames) = (nil, [:])
        }
        pageSize = header?.pageSize ?? 0
        // An old SQLite doesn't record the size.
        let isCounted = header.map { $0.pageCount > 0 && $0.changeCounter == $0.versionValidFor } ?? false
        pageCount = isCounted ? header?.pageCount ?? 0 : pageSize == 0 ? 0 : UInt32(stamp.size / Int64(pageSize))
    }

    /// The database's stamp if no program has it open in WAL mode and there is no log; else nil.
    var idleStamp: StoreFiles.Stamp? {
        index == nil && (logStamp?.size ?? 0) == 0 && files.walIndex == nil ? stamp : nil
    }

    private static func log(of index: WriteAheadIndex, in files: StoreFiles) throws -> WALFile? {
        // One that was opened earlier may have lost its name to another with the same salt.
        guard let log = try files.openWAL(reopening: true), try log.belongs(to: index) else { return nil }
        return log
    }

    private static func frames(
        upTo commit: WriteAheadIndex, in log: WALFile
    ) throws -> (frames: [UInt32: UInt32], pageCount: UInt32) {
        var frames: [UInt32: UInt32] = [:]
        var pageCount: UInt32 = 0
        try withUnsafeTemporaryAllocation(byteCount: WALFile.frameHeaderLength, alignment: 8) { buffer in
            for frame in 1...commit.lastFrame {
                guard try log.read(into: buffer, at: WALFile.offset(ofFrame: frame, commit.pageSize)) == buffer.count
                else { throw Disturbed() }
                let bytes = UnsafeRawBufferPointer(buffer)
                frames[bytes.word(0)] = frame
                pageCount = bytes.word(4)
            }
        }
        // The last frame ends a commit.
        guard pageCount > 0 else { throw Disturbed() }
        return (frames.filter { $0.key <= pageCount }, pageCount)
    }

    /// The frames of a log that no index reports, up to the last whole commit.
    private static func abandonedFrames(
        _ files: StoreFiles, path: FilePath
    ) throws -> (frames: [UInt32: UInt32], pageCount: UInt32, pageSize: Int) {
        guard let name = path.lastComponent, let log = name.appending("-wal") else { return ([:], 0, 0) }
        let logPath = path.removingLastComponent().appending(log)
        let descriptor = try Descriptor(opening: logPath, flags: O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        let last = try WriteAheadLog(descriptor, path: logPath).lastFrame
        guard last > 0 else { return ([:], 0, 0) }
        let pageSize = try descriptor.read(count: 12, at: 0, path: logPath).withUnsafeBytes { Int($0.word(8)) }
        var frames: [UInt32: UInt32] = [:]
        var pageCount: UInt32 = 0
        for frame in 1...last {
            let offset = WALFile.offset(ofFrame: frame, pageSize)
            let bytes = try descriptor.read(count: 8, at: offset, path: logPath)
            guard bytes.count == 8 else { throw Disturbed() }
            bytes.withUnsafeBytes {
                frames[$0.word(0)] = frame
                pageCount = $0.word(4)
            }
        }
        return (frames.filter { $0.key <= pageCount }, pageCount, pageSize)
    }

    /// Reads pages from `first` on, as many as the buffer holds. Missing bytes at the database's end are zeros, as they
    /// are for SQLite.
    func read(_ first: UInt32, into buffer: UnsafeMutableRawBufferPointer) throws {
        let count = try database.read(into: buffer, at: Int64(first - 1) * Int64(pageSize))
        UnsafeMutableRawBufferPointer(rebasing: buffer[count...]).initializeMemory(as: UInt8.self, repeating: 0)
        guard let log else { return }
        for place in 0..<buffer.count / pageSize {
            guard let frame = frames[first + UInt32(place)] else { continue }
            let page = UnsafeMutableRawBufferPointer(rebasing: buffer[place * pageSize..<(place + 1) * pageSize])
            let offset = WALFile.offset(ofFrame: frame, pageSize) + Int64(WALFile.frameHeaderLength)
            guard try log.read(into: page, at: offset) == pageSize else { throw Disturbed() }
        }
    }

    /// Makes a file a clone of the database as it is now, without its log. Returns false where the file system can't.
    func clone(to file: borrowing Descriptor) -> Bool { database.clone(to: file) }

    /// True if the log has a page, so that the database's may be another.
    func isLogged(_ number: UInt32) -> Bool { frames[number] != nil }

    /// True if all that was read so far is of one commit.
    func isConfirmed() throws -> Bool {
        guard try files.isIndexCurrent() else { return false }
        let now = try files.stamp()
        guard let index else {
            if try files.walStamp() != logStamp { return false }
            if try files.walIndex == nil && files.isJournalHot() { return false }
            guard now.isIdentical(to: stamp), !files.isLockedExclusively() else { return false }
            return try files.header()?.changeCounter == changeCounter
        }
        guard let later = try files.readIndex(), later.salt == index.salt, later.lastFrame >= index.lastFrame,
            later.checkpointedFrame <= index.lastFrame
        else { return false }
        // A write without a checkpoint is a copy over the database.
        let isCheckpointing = index.checkpointedFrame > index.backfilledFrame
        let hasProgressed = later.checkpointedFrame != index.checkpointedFrame
        return now == stamp || isCheckpointing || hasProgressed || later.backfilledFrame != index.backfilledFrame
    }
}

/// What was read isn't of one commit. Look again.
struct Disturbed: Error {}

/// The times of a file system's files.
enum FileTimes {
    /// True if each write to a file of that directory leaves another time than the last one that was read. Linux sees
    /// to that since 6.13, on these file systems.
    static func areExact(in directory: FilePath) -> Bool {
        guard isKernelExact, let name = try? Directory(directory).fileSystem().name else { return false }
        return ["ext4", "xfs", "btrfs", "tmpfs"].contains(name)
    }

    private static let isKernelExact: Bool = {
        var name = utsname()
        guard uname(&name) == 0 else { return false }
        let release = withUnsafeBytes(of: name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        let numbers = release.split { !$0.isNumber }.prefix(2).compactMap { Int($0) }
        return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 13)
    }()
}
