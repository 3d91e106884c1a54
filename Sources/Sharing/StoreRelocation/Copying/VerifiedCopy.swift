import Glibc
import LinuxSystem
import SystemPackage

/// A copy of one file, with its attributes, as a new file. The copy is verified by reading it back, and synced, unless
/// the caller syncs many at once. Its name isn't synced: the caller syncs the directory.
package struct VerifiedCopy {
    /// Bytes to change in the copy: a database's file format version.
    package struct Patch {
        let offset: Int
        let bytes: [UInt8]
    }

    package struct Result {
        package let method: FileCopy.Method
        /// Hash of what was written, including the patch. Nil for a reflink: it shares its blocks with the source, so
        /// there is nothing to compare, and it takes the same time for any size.
        package let hash: String?
        package let bytes: Int64
        package let identity: FileIdentity
        /// The names of the attributes that the copy could not be given.
        package let lostAttributes: [String]
    }

    /// The bytes read back differ from the bytes written.
    struct Mismatch: ActionableError {
        let path: FilePath

        var errorCode: String { "copy_differs" }
        var message: String { "\(PrintablePath(path)) differs from what was written to it" }
        var remedy: String { "check the disk and the memory of this machine" }
        var errorPath: FilePath? { path }
    }

    let source: FilePath
    let destination: Directory
    let name: FilePath.Component
    let patch: Patch?
    /// Polled before each part.
    let isCancelled: () -> Bool
    /// Receives the number of bytes copied after each part.
    let progress: (Int64) -> Void
    /// False if the caller syncs the whole file system, which takes far less time for many small files.
    let isSynced: Bool

    package init(
        source: FilePath, destination: Directory, name: FilePath.Component, patch: Patch? = nil,
        isSynced: Bool = true, isCancelled: @escaping () -> Bool, progress: @escaping (Int64) -> Void
    ) {
        self.source = source
        self.destination = destination
        self.name = name
        self.patch = patch
        self.isSynced = isSynced
        self.isCancelled = isCancelled
        self.progress = progress
    }

    private var path: FilePath { destination.path.appending(name) }

    /// Copies the content of `descriptor`, with mode, owner and times, to a new file `name`.
    package func run(from descriptor: borrowing Descriptor) throws -> Result {
        let before = try descriptor.status(path: source)
        let target = try destination.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        let parts = VerifiedParts(of: target.raw, path: path, patch: patch, size: before.size)
        let copied: FileCopy.Result
        do {
            copied = try content().run(from: descriptor, to: target, through: parts)
        } catch {
            parts.cancel()
            throw error
        }
        var hash: String?
        switch copied.method {
        case .reflink: try patch.map { try apply($0, to: target, size: before.size) }
        case .copy: hash = try parts.finish()
        }
        let lost = try keepAttributes(before, of: descriptor.raw, on: target)
        if isSynced { try target.synchronize(path: path) }
        return Result(
            method: copied.method, hash: hash, bytes: before.size, identity: try target.status(path: path).identity,
            lostAttributes: lost)
    }

    private func content() -> FileCopy {
        var copy = FileCopy(from: source, to: path)
        copy.beginsWriteback = true
        var reported: Int64 = 0
        copy.progress = { bytes in
            if isCancelled() { throw RelocationFailure.cancelled(source) }
            guard bytes > reported else { return }
            reported = bytes
            progress(bytes)
        }
        return copy
    }

    private func apply(_ patch: Patch, to target: borrowing Descriptor, size: Int64) throws(SystemError) {
        guard Int64(patch.offset + patch.bytes.count) <= size else { return }
        try target.write(patch.bytes, at: Int64(patch.offset), path: path)
    }

    private func keepAttributes(
        _ status: FileStatus, of source: CInt, on target: borrowing Descriptor
    ) throws(SystemError) -> [String] {
        let raw = target.raw
        try ExtendedAttributes.removeInheritedLists(of: raw, path: path)
        try keepOwner(status, of: raw, path: path)
        let lost = try ExtendedAttributes.copy(from: source, to: raw, mode: status.permissions, path: path)
        var times = (status.modifiedTime, status.modifiedTime)
        try retrying("futimens", path: path) {
            withUnsafePointer(to: &times) { pointer in
                pointer.withMemoryRebound(to: timespec.self, capacity: 2) { futimens(raw, $0) }
            }
        }
        return lost
    }
}

/// The parts of a verified copy. Each is patched, and read back right after it was written, compared and hashed.
private final class VerifiedParts: FileCopyBuffers {
    private let descriptor: CInt
    private let path: FilePath
    private let patch: VerifiedCopy.Patch?
    /// The expected size. A small file is copied in less time than a thread takes to start.
    private let size: Int64
    /// Nil until there is a part: a reflink has none, and needs no thread.
    private var verifier: CopyVerifier?

    init(of descriptor: CInt, path: FilePath, patch: VerifiedCopy.Patch?, size: Int64) {
        (self.descriptor, self.path, self.patch, self.size) = (descriptor, path, patch, size)
    }

    func nextBuffer() throws -> UnsafeMutableRawBufferPointer {
        let verifier =
            try self.verifier
            ?? CopyVerifier(
                descriptor: descriptor, path: path,
                isConcurrent: size > Int64(CopyVerifier.chunk) && CopyVerifier.hasProcessorToSpare)
        self.verifier = verifier
        return try verifier.nextBuffer()
    }

    func didRead(_ part: UnsafeMutableRawBufferPointer, at offset: Int64) {
        guard offset == 0, let patch, patch.offset + patch.bytes.count <= part.count else { return }
        part[patch.offset..<patch.offset + patch.bytes.count].copyBytes(from: patch.bytes)
    }

    func didWrite(_ count: Int) throws { try verifier?.didWrite(count) }

    /// Returns the hash of what was written. Call this or `cancel` before the descriptor is closed.
    func finish() throws -> String { try verifier?.finish() ?? ContentHash().text() }

    func cancel() { verifier?.cancel() }
}

/// Copies owner and group as far as this process may. Without root, the file has this user as owner already, and only a
/// group of this user can be set.
package func keepOwner(_ status: FileStatus, of raw: CInt, path: FilePath) throws(SystemError) {
    let owner = geteuid() == 0 ? status.owner : uid_t.max
    do {
        try retrying("fchown", path: path) { fchown(raw, owner, status.group) }
    } catch {
        guard error.errno == .notPermitted, geteuid() != 0 else { throw error }
    }
}
