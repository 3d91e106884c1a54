import CLinux
import ChangeFeed
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// What a shadow of a store would take. A part of the store is cloned or copied to a file without a name, where the
/// shadow would be; nothing remains of it.
package struct ShadowEstimate: Sendable {
    /// The size of the copy in bytes.
    package let size: Int64
    /// Bytes that a shadow may take there. Some are left to the programs that write the store.
    package let available: UInt64
    /// True if the file system clones the database, so that the copy takes no space at first. Nil if that isn't known:
    /// the file system has no files without names.
    package let isCloned: Bool?
    /// Nil if nothing was measured.
    package private(set) var measurement: Measurement?

    package struct Measurement: Sendable {
        /// The time that it takes to make the shadow, in seconds.
        package let seconds: Double
        /// The size of the part that was measured, in bytes.
        package let part: Int64
    }

    /// The size in bytes up to which the log grows.
    package static var logLimit: Int64 { RowShadow.Limits().log }
    /// True if there is space for the copy.
    package var fits: Bool { isCloned == true || UInt64(size) <= available }

    /// - Parameters:
    ///   - store: The absolute path of the database.
    ///   - place: The place of its shadows, which need not exist.
    ///   - measures: True to measure the time.
    ///
    /// Throws `RowShadowError.absent` and `SystemError`.
    package init(of store: FilePath, in place: ShadowPlace, measures: Bool) throws {
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
        var isCloned: Bool?
        do throws(SystemError) {
            let target = try Descriptor(opening: directory, flags: O_RDWR | O_CLOEXEC | gs_o_tmpfile, mode: 0o600)
            let found = source.clone(to: target)
            if measures {
                measurement = try Measurement(source, at: store, target, in: directory, isCloned: found, size: size)
            }
            isCloned = found
        } catch {
            guard error.errno == .notSupported || error.errno == .isDirectory else { throw error }
        }
        self.isCloned = isCloned
    }
}

extension ShadowEstimate.Measurement {
    private static let longest: Int64 = 64 << 20

    /// Copies a part of the store, and reads it as the making of a shadow does.
    fileprivate init(
        _ source: borrowing Descriptor, at store: FilePath, _ target: borrowing Descriptor, in directory: FilePath,
        isCloned: Bool, size: Int64
    ) throws(SystemError) {
        let start = ContinuousClock.now
        if isCloned {
            part = min(try target.status(path: directory).size, Self.longest)
            // The sums are those of the store's pages.
            try Self.read(source, part, by: 1 << 20)
        } else {
            var copy = FileCopy(from: store, to: directory)
            copy.maximumSize = Self.longest
            copy.checksHoles = false
            do { part = try copy.run(from: source, to: target).bytes } catch {
                throw error as? SystemError ?? SystemError("read", .ioError, path: store)
            }
        }
        try target.synchronize(path: directory)
        // The copy's pages are read one by one for its map.
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
