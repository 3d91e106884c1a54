import FoundationEssentials
import Glibc
import GroupContainer
import LinuxSystem
import PersistentStore
import SystemPackage

/// The verified copies of a set that a transfer needs: one to publish on another file system, one for the archive.
struct StagedSet {
    struct Copy {
        let method: Transfer.Method
        /// Nil for a reflink.
        let hash: String?
        let database: FileIdentity
        let support: FileIdentity?

        fileprivate var transformed: Copy {
            Copy(method: .migrate, hash: hash, database: database, support: support)
        }
    }

    /// What the copies were made from.
    let fingerprint: DatabaseFingerprint
    /// The one to publish; nil on one file system.
    let copy: Copy?
    /// What a transform has made of the copy; nil when there was none.
    let transformed: TransformedStore?

    /// Makes the copies, in place of earlier ones. Throws when the source changed meanwhile, or on a full disk.
    init(
        of source: StoreLocation, fingerprint: DatabaseFingerprint, transfer: Transfer, places: TransferPlaces,
        container: GroupContainer, copies: Bool, archives: Bool, opaque: Bool, transform: (any StoreTransform)?,
        report: @escaping (RelocationEvent) -> Void
    ) throws {
        self.fingerprint = fingerprint
        let writer = SetCopy(
            source: source, identity: fingerprint.identity, inRollbackMode: transfer.hadWAL && !opaque,
            hasSupport: transfer.support != nil,
            report: report)
        if archives {
            let archive = try container.archive(transfer.id)
            _ = try writer.run(to: StoreLocation(directory: archive, name: source.name))
            try container.write(
                ArchiveNote(
                    id: transfer.id, name: source.name.database, from: source.path, at: Date(),
                    reason: "a copy of the store as it was when it was relocated"))
        }
        if copies, let destination = places.destination {
            let staged = StoreLocation(directory: try places.staging(), name: destination.name)
            let copy = try writer.run(to: staged)
            transformed = try transform.map { try $0.run(staged, report) }
            // The hash stays that of the copied bytes: by it the old store is known, should it come back.
            self.copy = transform == nil ? copy : copy.transformed
        } else {
            copy = nil
            transformed = nil
        }
    }
}

/// Something among a store's parts that is neither a file nor a directory, where one of them belongs.
struct UnusualFile: Error {
    let path: FilePath
}

/// Copies a database and its support folder under other names, each file synced and verified.
private struct SetCopy {
    let source: StoreLocation
    /// Of the database that is to be copied.
    let identity: FileIdentity
    let inRollbackMode: Bool
    let hasSupport: Bool
    let report: (RelocationEvent) -> Void

    func run(to target: StoreLocation) throws -> StagedSet.Copy {
        try target.directory.removeTree(target.name.database)
        try target.directory.removeTree(target.name.support)
        let total =
            try (source.directory.status(source.name.database)?.size ?? 0)
            + (hasSupport ? source.directory.bytes(under: source.name.support) : 0)
        var done: Int64 = 0
        let descriptor = try source.directory.open(source.name.database, flags: O_RDONLY)
        guard try descriptor.status(path: source.path).identity == identity else { throw StoreTransfer.Setback.changed }
        let patch = inRollbackMode ? FileCopy.Patch(offset: 18, bytes: [1, 1]) : nil
        let database = try FileCopy(
            source: source.path, destination: target.directory, name: target.name.database, patch: patch,
            progress: { report(.copied(bytes: $0, of: total)) }
        ).run(from: descriptor)
        done += database.bytes
        if hasSupport {
            try copyTree(
                source.name.support, in: source.directory, to: target.name.support, in: target.directory, &done, total)
        }
        try target.directory.synchronize()
        return StagedSet.Copy(
            method: database.method == .reflink ? .reflink : .copy, hash: database.hash,
            database: database.identity, support: try target.directory.identity(target.name.support))
    }

    private func copyTree(
        _ name: FilePath.Component, in parent: Directory, to newName: FilePath.Component, in newParent: Directory,
        _ done: inout Int64, _ total: Int64
    ) throws {
        let directory = try parent.directory(name)
        try newParent.makeDirectory(newName, mode: 0o700)
        let copy = try newParent.directory(newName)
        for child in try directory.names() {
            guard let status = try directory.status(child) else { continue }
            switch status.kind {
            case .directory: try copyTree(child, in: directory, to: child, in: copy, &done, total)
            case .regular:
                let descriptor = try directory.open(child, flags: O_RDONLY)
                let before = done
                done += try FileCopy(
                    source: directory.path.appending(child), destination: copy, name: child, patch: nil,
                    progress: { report(.copied(bytes: before + $0, of: total)) }
                ).run(from: descriptor).bytes
            case .symbolicLink, .other: throw UnusualFile(path: directory.path.appending(child))
            }
        }
        try copy.keepAttributes(of: directory)
        try copy.synchronize()
    }
}

extension Directory {
    /// Bytes of the regular files under a name.
    func bytes(under name: FilePath.Component) throws(SystemError) -> Int64 {
        guard let status = try status(name) else { return 0 }
        guard status.kind == .directory else { return status.size }
        let inside = try directory(name)
        var total: Int64 = 0
        for child in try inside.names() { total += try inside.bytes(under: child) }
        return total
    }

    /// Takes over another directory's mode, lists and other attributes, and its owner when this process may.
    fileprivate func keepAttributes(of other: Directory) throws(SystemError) {
        let status = try other.status()
        try ExtendedAttributes.removeInheritedLists(of: raw, path: path)
        try keepOwner(status, of: raw, path: path)
        try retrying("fchmod", path: path) { fchmod(raw, status.permissions) }
        try ExtendedAttributes.copy(from: other.raw, to: raw, path: path)
    }
}

extension StoreTransform {
    /// Changes the copy and puts the result on the disk.
    fileprivate func run(_ staged: StoreLocation, _ report: (RelocationEvent) -> Void) throws -> TransformedStore {
        let done = try run(on: staged) { report(.transforming(fraction: $0, doing: $1)) }
        for name in staged.name.sideFiles { try staged.directory.removeFile(name) }
        let file = try staged.directory.open(staged.name.database, flags: O_RDWR)
        try file.synchronize(path: staged.path)
        try staged.directory.synchronize()
        return done
    }
}
