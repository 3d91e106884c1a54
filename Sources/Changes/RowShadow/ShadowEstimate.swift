import CLinux
import ChangeFeed
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// What a shadow of a store would take, measured on a part of it. The part is copied to a file without a name, where
/// the shadow would be; nothing remains of it.
package struct ShadowEstimate: Sendable {
    /// The size of the copy in bytes.
    package let size: Int64
    /// Bytes that a shadow may take there. Some are left to the programs that write the store.
    package let available: UInt64
    /// Nil if the file system has no files without names.
    package let measurement: Measurement?

    package struct Measurement: Sendable {
        /// True if the file system clones the database, so that the copy takes no space at first.
        package let isCloned: Bool
        /// The time that it takes to make the shadow, in seconds.
        package let seconds: Double
        /// The size of the part that was measured, in bytes.
        package let part: Int64
    }

    /// The size in bytes up to which the log grows.
    package static var logLimit: Int64 { RowShadow.maximumLog }
    /// True if there is space for the copy.
    package var fits: Bool { measurement?.isCloned == true || UInt64(size) <= available }

    /// - Parameters:
    ///   - store: The absolute path of the database.
    ///   - place: The place of its shadows, which need not exist.
    ///
    /// Throws `RowShadowError.absent` and `SystemError`.
    package init(of store: FilePath, in place: ShadowPlace) throws {
        guard let file = store.lastComponent, let name = StoreName(file),
            let files = try StoreFiles.current(store.removingLastComponent(), name, unless: nil)
        else { throw RowShadowError.absent(store) }
        defer { files.closeDatabase() }
        let source = try Descriptor(opening: store, flags: O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        let length = try source.status(path: store).size
        _ = try files.refreshIndex(finalRead: {}, changed: { _ in })
        // What is only in the log counts too.
        let exact = FileTimes.areExact(in: store.removingLastComponent())
        let view = try? StoreView(files, path: store, hasExactTimes: exact)
        size = max(length, view.map { Int64($0.pageCount) * Int64($0.pageSize) } ?? 0)

        var directory = place.path
        while try !ShadowPlace(path: directory).exists(), directory.removeLastComponent() {}
        let found = try Directory(directory)
        let reserve = ShadowSpace(found.raw)?.reserve ?? 0
        let free = try found.fileSystem().available
        available = free - min(free, reserve)
        do throws(SystemError) {
            let target = try Descriptor(opening: directory, flags: O_RDWR | O_CLOEXEC | gs_o_tmpfile, mode: 0o600)
            measurement = try Measurement(source, at: store, target, in: directory, size: size)
        } catch {
            guard error.errno == .notSupported || error.errno == .isDirectory else { throw error }
            measurement = nil
        }
    }
}

extension ShadowEstimate.Measurement {
    private static let longest: Int64 = 64 << 20

    /// Copies a part of the store, and reads it as the making of a shadow does.
    fileprivate init(
        _ source: borrowing Descriptor, at store: FilePath, _ target: borrowing Descriptor, in directory: FilePath,
        size: Int64
    ) throws(SystemError) {
        let start = ContinuousClock.now
        var copy = FileCopy(from: store, to: directory)
        copy.maximumSize = Self.longest
        copy.checksHoles = false
        let result: FileCopy.Result
        do { result = try copy.run(from: source, to: target) } catch {
            throw error as? SystemError ?? SystemError("read", .ioError, path: store)
        }
        isCloned = result.method == .reflink
        try target.synchronize(path: directory)
        part = min(result.bytes, Self.longest)
        // Afterwards the store is compared with its copy, whose pages are then read one by one.
        try Self.read(source, part, by: 1 << 18)
        try Self.read(target, part, by: 1 << 18)
        try Self.read(target, part, by: 4096)
        let time = Double((ContinuousClock.now - start) / .microseconds(1)) / 1e6
        seconds = part == 0 ? time : time * Double(size) / Double(part)
    }

    private static func read(_ file: borrowing Descriptor, _ end: Int64, by length: Int) throws(SystemError) {
        var offset: Int64 = 0
        while offset < end {
            _ = try file.read(count: length, at: offset)
            offset += Int64(length)
        }
    }
}
