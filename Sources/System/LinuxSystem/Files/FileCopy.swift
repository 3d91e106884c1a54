import CLinux
import Glibc
import SystemPackage

/// A copy of one file's content into another, empty file.
///
/// The copy is a reflink if the file system supports it. Otherwise the kernel copies (copy_file_range(2)), or, where it
/// can't, this process reads and writes. Holes stay holes. The copy ends where the source ends when it gets there, so
/// a file that grows meanwhile is copied with what it has gained, and one that shrinks up to its new end.
///
/// Hand-written because Foundation's `FileManager` copies by path and can't be stopped midway.
///
/// Nothing is synced, and only content is copied: the caller syncs the copy, and its directory, and sets its mode.
package struct FileCopy {
    package enum Method {
        case reflink, copy
    }

    package struct Result {
        package let method: Method
        /// The size of the copy.
        package let bytes: Int64
    }

    /// The size of a part that the kernel copies between two calls of `progress`.
    private static let kernelPart: Int64 = 16 << 20
    /// The number of bytes after which writeback starts.
    private static let writeback: Int64 = 4 << 20

    private let sourcePath: FilePath
    private let targetPath: FilePath
    /// The number of bytes after which the copy ends, even if the source has grown. A reflink is always complete.
    package var maximumSize = Int64.max
    /// True if a hole is read to make sure that it is one. Some file systems have reported holes where written data had
    /// not reached the disk yet (OpenZFS before 2.2.2). False only for a copy that may be made again: reading the holes
    /// of a file may take far longer than reading its data.
    package var checksHoles = true
    /// True if writing to the disk starts while the copy continues, so that the caller's sync has little left to write.
    package var beginsWriteback = false
    /// Receives the number of bytes copied so far, before each part and at the end. An error that it throws ends the
    /// copy.
    package var progress: (Int64) throws -> Void = { _ in }

    /// Creates a copy. The paths are those of the errors.
    package init(from sourcePath: FilePath, to targetPath: FilePath) {
        self.sourcePath = sourcePath
        self.targetPath = targetPath
    }

    /// Copies the content. `target` must be open for writing and empty; with `buffers`, for reading too. All bytes pass
    /// through `buffers` unless the copy is a reflink. If this throws, the target has part of the content.
    ///
    /// Throws `SystemError`, and what `progress` and the buffers throw.
    package func run(
        from source: borrowing Descriptor, to target: borrowing Descriptor,
        through buffers: (any FileCopyBuffers)? = nil
    ) throws -> Result {
        if source.clone(to: target) {
            let size = try target.status(path: targetPath).size
            try progress(size)
            return Result(method: .reflink, bytes: size)
        }
        var run = Run(copy: self, buffers: buffers ?? PlainBuffers(), isKernelCopying: buffers == nil)
        try run.copyAll(from: source, to: target)
        return Result(method: .copy, bytes: run.offset)
    }

    /// The copying without a reflink.
    private struct Run {
        let copy: FileCopy
        let buffers: any FileCopyBuffers
        /// True until the kernel can't copy.
        var isKernelCopying: Bool
        /// The number of bytes copied, which is also the size of the target.
        var offset: Int64 = 0
        private var flushed: Int64 = 0

        init(copy: FileCopy, buffers: any FileCopyBuffers, isKernelCopying: Bool) {
            self.copy = copy
            self.buffers = buffers
            self.isKernelCopying = isKernelCopying
        }

        mutating func copyAll(from source: borrowing Descriptor, to target: borrowing Descriptor) throws {
            while let extent = try source.extent(at: offset, limit: copy.maximumSize, path: copy.sourcePath) {
                while offset < extent.end {
                    try copy.progress(offset)
                    // The source may have become shorter: the next extent, if there is any, begins where this one ends.
                    guard try copyPart(of: extent, from: source, to: target) else { break }
                    beginWriteback(of: target)
                }
                if offset < extent.end { break }
            }
            try copy.progress(offset)
        }

        /// Copies one part of an extent. Returns false at the end of the source.
        private mutating func copyPart(
            of extent: Extent, from source: borrowing Descriptor, to target: borrowing Descriptor
        ) throws -> Bool {
            if extent.isHole, !copy.checksHoles {
                try target.truncate(to: extent.end, path: copy.targetPath)
                offset = extent.end
                return true
            }
            if !extent.isHole, isKernelCopying {
                let count = kernelCopy(
                    from: source, to: target, length: min(extent.end - offset, FileCopy.kernelPart))
                if count > 0 {
                    offset += count
                    return true
                }
                // At an error or an early end, reading and writing tell whether it is the kernel's, the file's or the
                // disk's. Some kernels return 0 for a file that they can't copy.
                isKernelCopying = false
            }
            return try copyThroughMemory(of: extent, from: source, to: target)
        }

        private func kernelCopy(
            from source: borrowing Descriptor, to target: borrowing Descriptor, length: Int64
        ) -> Int64 {
            let (source, target) = (source.raw, target.raw)
            let count = try? retrying("copy_file_range") {
                gs_copy_file_range(source, target, off_t(offset), Int(length))
            }
            return Int64(count ?? 0)
        }

        private mutating func copyThroughMemory(
            of extent: Extent, from source: borrowing Descriptor, to target: borrowing Descriptor
        ) throws -> Bool {
            let buffer = try buffers.nextBuffer()
            let length = Int(min(Int64(buffer.count), extent.end - offset))
            let count = try source.read(
                into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<length]), at: offset, path: copy.sourcePath)
            guard count > 0 else { return false }
            let part = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
            buffers.didRead(part, at: offset)
            if extent.isHole, part.isZero {
                try target.truncate(to: offset + Int64(count), path: copy.targetPath)
            } else {
                try target.write(UnsafeRawBufferPointer(part), at: offset, path: copy.targetPath)
            }
            try buffers.didWrite(count)
            offset += Int64(count)
            return true
        }

        private mutating func beginWriteback(of target: borrowing Descriptor) {
            guard copy.beginsWriteback, offset - flushed >= FileCopy.writeback else { return }
            target.beginWriteback(at: flushed, count: offset - flushed)
            flushed = offset
        }
    }
}

/// The memory that a copy's bytes pass through, for callers that inspect or change them.
package protocol FileCopyBuffers: AnyObject {
    /// Returns the memory for the next part of the file.
    func nextBuffer() throws -> UnsafeMutableRawBufferPointer
    /// Receives the part that was read, before it is written.
    func didRead(_ part: UnsafeMutableRawBufferPointer, at offset: Int64)
    /// Reports that the first `count` bytes of the buffer are in the copy.
    func didWrite(_ count: Int) throws
}

private final class PlainBuffers: FileCopyBuffers {
    private lazy var buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
    private var isAllocated = false

    deinit { if isAllocated { buffer.deallocate() } }

    func nextBuffer() -> UnsafeMutableRawBufferPointer {
        isAllocated = true
        return buffer
    }

    func didRead(_: UnsafeMutableRawBufferPointer, at _: Int64) {}
    func didWrite(_: Int) {}
}

/// A part of a file that is either data or a hole.
private struct Extent {
    let end: Int64
    let isHole: Bool
}

extension Descriptor {
    /// Replaces another file's content by a clone of this one's. Returns false where the file system can't.
    package func clone(to file: borrowing Descriptor) -> Bool { gs_reflink(file.raw, raw) == 0 }

    /// Returns the extent at an offset, up to `limit` at most; nil at the end of the file. A file system that doesn't
    /// report holes has none.
    fileprivate func extent(at offset: Int64, limit: Int64, path: FilePath) throws(SystemError) -> Extent? {
        let size = min(try status(path: path).size, limit)
        guard offset < size else { return nil }
        guard let data = next(gs_seek_data, from: offset) else {
            // ENXIO: there is no data after the offset.
            return Extent(end: size, isHole: errno == ENXIO)
        }
        if data > offset { return Extent(end: min(data, size), isHole: true) }
        let hole = next(gs_seek_hole, from: offset) ?? size
        // If the file shrank since, its end comes first: the size is then an end that isn't reached.
        return Extent(end: hole > offset ? min(hole, size) : size, isHole: false)
    }

    /// Returns the offset of the next data or hole, or nil, with errno, if there is none or that is unknown.
    private func next(_ kind: CInt, from offset: Int64) -> Int64? {
        let found = lseek(raw, off_t(offset), kind)
        return found < 0 ? nil : Int64(found)
    }
}

extension UnsafeMutableRawBufferPointer {
    /// True if all bytes are zero.
    package var isZero: Bool {
        guard let start = baseAddress, let first else { return true }
        return first == 0 && memcmp(start, start + 1, count - 1) == 0
    }
}
