import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The verified copies that a transfer needs: one to publish on another file system, one for the archive.
struct StagedSet {
    struct Copy {
        let method: Transfer.Method
        /// Nil for a reflink.
        let hash: String?
        let database: FileIdentity
        let support: FileIdentity?
    }

    /// The fingerprint of the copied database.
    let fingerprint: DatabaseFingerprint
    /// The copy to publish; nil on one file system.
    var copy: Copy?
    /// The result of the transform; nil if there was none.
    var transformed: TransformedStore?
    /// What was merged into the copy; nil if nothing was.
    var merge: MergeReport?
    /// True if the original store is in the archive.
    var isArchived = false
}

/// Makes the copies of one transfer.
struct Staging {
    let transfer: Transfer
    let paths: TransferPaths
    let options: StoreTransfer.Options
    let report: (RelocationEvent) -> Void

    private var source: StoreLocation { paths.source }
    private var content: PublishedContent { options.content }

    var isNeeded: Bool { publishesCopy || keepsOriginal }

    /// True if a copy is published, and not the store itself.
    private var publishesCopy: Bool { transfer.copies && paths.destination != nil }

    /// True if the archive gets a copy of the original store, whatever is published.
    private var keepsOriginal: Bool {
        guard case .publish = transfer.purpose else { return false }
        return transfer.retirement == .archive || content.archiveReason != nil
    }

    /// Makes the copies, and replaces earlier ones. Throws if the source changed in the meantime, or on a full disk.
    func run(_ fingerprint: DatabaseFingerprint) throws -> StagedSet {
        let copier = SetCopy(
            source: source, identity: fingerprint.identity, inRollbackMode: transfer.hadWAL && !options.opaque,
            hasSupport: transfer.support != nil, isCancelled: options.retries.isCancelled, report: report)
        var set = StagedSet(fingerprint: fingerprint)
        // What a transform removes is known when it has run.
        if !content.isTransformed { try archive(&set, by: copier) }
        let name = publishesCopy ? paths.destination?.name : nil
        let staged = try name.map { StoreLocation(directory: try paths.staging(), name: $0) }
        if let staged { try makeCopy(&set, at: staged, by: copier) }
        if content.isTransformed { try archive(&set, by: copier) }
        if let staged { try options.verify(staged) }
        return set
    }

    /// Copies the original store into the archive, if that is requested or if content was removed from the copy.
    private func archive(_ set: inout StagedSet, by copier: SetCopy) throws {
        let losses = set.transformed?.losses ?? .none
        guard keepsOriginal || !losses.isEmpty else { return }
        if content.isTransformed { try source.checkExternalDataIsUnshared() }
        // A store that keeps its name keeps its support folder, so the archived store gets a copy of it.
        var copier = copier
        copier.hasSupport = try source.directory.status(source.name.support)?.kind == .directory
        let archive = try paths.container.archive(transfer.id)
        let copied = try copier.run(to: StoreLocation(directory: archive, name: source.name))
        var note = ArchiveNote(
            id: transfer.id, name: source.name.database, from: source.path, at: Date(),
            reason: content.archiveReason ?? losses.reasonToKeepTheStore)
        note.hasSupport = copier.hasSupport
        note.hadWAL = transfer.hadWAL
        note.archived = try archive.status(source.name.database).map { .init($0, hash: copied.hash) }
        try paths.container.write(note)
        set.isArchived = true
    }

    /// Makes the copy to publish, with its content.
    private func makeCopy(_ set: inout StagedSet, at staged: StoreLocation, by copier: SetCopy) throws {
        switch content {
        case .same: set.copy = try copier.run(to: staged)
        case .transformed(let transform):
            let plain = try copier.run(to: staged)
            // The hash stays that of the copied bytes: it identifies the old store, should it come back.
            set.copy = StagedSet.Copy(
                method: .migrate, hash: plain.hash, database: plain.database, support: plain.support)
            // A store that keeps its name keeps its support folder in place.
            let supportOwner = transfer.support == nil ? source : staged
            set.transformed = try transform.run(staged, of: source.path, supportBeside: supportOwner, report)
        case .replaced(let replacement, _):
            set.transformed = try replacement.run(staged, replacing: source, report)
            set.copy = StagedSet.Copy(
                method: .replace, hash: nil, database: try staged.identity(),
                support: try staged.directory.identity(staged.name.support))
        case .merged(let combination, let legacy, let hash):
            let plain = try copier.run(to: staged)
            set.merge = try combination.run(on: staged, of: source.path, merging: legacy, report: report)
            // The hash is the other store's: it identifies that store, whose rows this one has now.
            set.copy = StagedSet.Copy(
                method: .merge, hash: hash, database: plain.database,
                support: try staged.directory.identity(staged.name.support))
        }
    }
}

extension RemovedContent {
    fileprivate var reasonToKeepTheStore: String {
        guard !isEmpty else { return "a copy of the store as it was when it was relocated" }
        let named = sentences.prefix(3).joined(separator: "; ")
        let rest = all.count > 3 ? "; and \(all.count - 3) more" : ""
        return "the store as it was before a migration that removed some of it: \(named)\(rest)"
    }
}

/// An entry among a store's parts that is neither a file nor a directory as required there.
struct UnsupportedFile: ActionableError {
    let path: FilePath

    var errorCode: String { "unusual_file" }
    var message: String { "\(PrintablePath(path)) is neither a file nor a directory" }
    var remedy: String { "replace it by what it refers to, or move it away" }
    var errorPath: FilePath? { path }
}

/// Copies a database and its support folder to other names. Syncs and verifies each file.
struct SetCopy {
    let source: StoreLocation
    /// The identity of the database to copy.
    let identity: FileIdentity
    let inRollbackMode: Bool
    var hasSupport: Bool
    let isCancelled: () -> Bool
    let report: (RelocationEvent) -> Void

    func run(to target: StoreLocation) throws -> StagedSet.Copy {
        try target.directory.removeTree(target.name.database)
        try target.directory.removeTree(target.name.support)
        let total =
            try (source.directory.status(source.name.database)?.size ?? 0)
            + (hasSupport ? source.directory.bytes(under: source.name.support) : 0)
        var done: Int64 = 0
        let descriptor = try source.directory.open(source.name.database, flags: O_RDONLY)
        guard try descriptor.status(path: source.path).identity == identity else {
            throw StoreTransfer.RetryReason.changed
        }
        let patch = inRollbackMode ? VerifiedCopy.Patch(offset: 18, bytes: [1, 1]) : nil
        let database = try VerifiedCopy(
            source: source.path, destination: target.directory, name: target.name.database, patch: patch,
            isCancelled: isCancelled, progress: { report(.copied(bytes: $0, of: total)) }
        ).run(from: descriptor)
        done += database.bytes
        if hasSupport {
            try copyTree(
                source.name.support, in: source.directory, to: target.name.support, in: target.directory, done: &done,
                total: total)
        }
        try target.directory.synchronize()
        return StagedSet.Copy(
            method: database.method == .reflink ? .reflink : .copy, hash: database.hash,
            database: database.identity, support: try target.directory.identity(target.name.support))
    }

    /// Copies the support folder alone.
    func runSupport(to target: StoreLocation) throws {
        var done: Int64 = 0
        let total = try source.directory.bytes(under: source.name.support)
        try copyTree(
            source.name.support, in: source.directory, to: target.name.support, in: target.directory, done: &done,
            total: total)
    }

    private func copyTree(
        _ name: FilePath.Component, in parent: Directory, to newName: FilePath.Component, in newParent: Directory,
        done: inout Int64, total: Int64
    ) throws {
        let directory = try parent.directory(name)
        try newParent.makeDirectory(newName, mode: 0o700)
        let copy = try newParent.directory(newName)
        // Inherited access control lists may take the owner's own right to write.
        try ExtendedAttributes.removeInheritedLists(of: copy.raw, path: copy.path)
        try copy.setPermissions(0o700)
        for child in try directory.names() {
            if isCancelled() { throw RelocationFailure.cancelled(source.path) }
            guard let status = try directory.status(child) else { continue }
            switch status.kind {
            case .directory:
                // A new mount belongs to somebody else, and the copy would empty it.
                guard try !directory.isMountPoint(child) else {
                    throw SystemError("open", .resourceBusy, path: directory.path.appending(child))
                }
                try copyTree(child, in: directory, to: child, in: copy, done: &done, total: total)
            case .regular:
                let descriptor = try directory.open(child, flags: O_RDONLY)
                let before = done
                done += try VerifiedCopy(
                    source: directory.path.appending(child), destination: copy, name: child, patch: nil,
                    isCancelled: isCancelled, progress: { report(.copied(bytes: before + $0, of: total)) }
                ).run(from: descriptor).bytes
            case .symbolicLink, .other: throw UnsupportedFile(path: directory.path.appending(child))
            }
        }
        try copy.keepAttributes(of: directory)
        try copy.synchronize()
    }
}

extension Directory {
    /// Returns the total size of the regular files under a name, in bytes.
    func bytes(under name: FilePath.Component) throws(SystemError) -> Int64 {
        guard let status = try status(name) else { return 0 }
        guard status.kind == .directory else { return status.size }
        let inside = try directory(name)
        var total: Int64 = 0
        for child in try inside.names() { total += try inside.bytes(under: child) }
        return total
    }

    /// Returns the number of files and directories from a name down.
    func fileCount(under name: FilePath.Component) throws(SystemError) -> Int {
        guard let kind = try status(name)?.kind else { return 0 }
        guard kind == .directory else { return 1 }
        let inside = try directory(name)
        var count = 1
        for child in try inside.names() { count += try inside.fileCount(under: child) }
        return count
    }

    /// Copies another directory's mode, access control lists and other attributes, and its owner if this process may.
    fileprivate func keepAttributes(of other: Directory) throws(SystemError) {
        let status = try other.status()
        try keepOwner(status, of: raw, path: path)
        try ExtendedAttributes.copy(from: other.raw, to: raw, mode: status.permissions, path: path)
    }
}

extension StoreTransform {
    /// Changes the copy and syncs the result.
    fileprivate func run(
        _ staged: StoreLocation, of store: FilePath, supportBeside supportOwner: StoreLocation,
        _ report: (RelocationEvent) -> Void
    ) throws -> TransformedStore {
        let done = try run(on: staged, of: store, supportBeside: supportOwner) {
            report(.transforming(fraction: $0, activity: $1))
        }
        try staged.synchronize()
        return done
    }
}

extension StoreLocation {
    fileprivate func identity() throws -> FileIdentity {
        guard let identity = try directory.identity(name.database) else { throw StoreTransfer.RetryReason.changed }
        return identity
    }

    /// Syncs what was written through SQLite.
    fileprivate func synchronize() throws {
        for name in name.sideFiles { try directory.removeFile(name) }
        let file = try directory.open(name.database, flags: O_RDWR)
        try file.synchronize(path: path)
        try directory.synchronize()
    }
}

extension StoreReplacement {
    /// Creates the store with the owner, mode and other attributes of the one that it replaces, and syncs it.
    fileprivate func run(
        _ staged: StoreLocation, replacing old: StoreLocation, _ report: (RelocationEvent) -> Void
    ) throws -> TransformedStore {
        try staged.directory.removeTree(staged.name.database)
        try staged.directory.removeTree(staged.name.support)
        let from = try old.directory.open(old.name.database, flags: O_RDONLY)
        let status = try from.status(path: old.path)
        try create(staged)
        let done = try make(at: staged, replacing: old) { report(.transforming(fraction: $0, activity: $1)) }
        let file = try staged.directory.open(staged.name.database, flags: O_RDWR)
        // These two bytes say whether SQLite uses a write-ahead log (https://sqlite.org/fileformat2.html, §1.3.3).
        try file.write([1, 1], at: 18, path: staged.path)
        try keepOwner(status, of: file.raw, path: staged.path)
        try ExtendedAttributes.removeInheritedLists(of: file.raw, path: staged.path)
        try ExtendedAttributes.copy(from: from.raw, to: file.raw, mode: status.permissions, path: staged.path)
        try staged.directory.give(
            staged.name.support, attributesOf: status, directoryMode: old.directory.status().permissions & 0o777)
        try staged.synchronize()
        return done
    }

    /// Creates an empty file that no other user can read yet.
    private func create(_ staged: StoreLocation) throws {
        _ = try staged.directory.open(staged.name.database, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
    }
}

extension Directory {
    /// Gives the named file, or the directory with everything in it, the owner and mode of the store: a user who may
    /// write to the store must be able to write to its external data. Does nothing if the name doesn't exist.
    fileprivate func give(_ name: FilePath.Component, attributesOf status: FileStatus, directoryMode: mode_t)
        throws(SystemError)
    {
        guard let found = try self.status(name) else { return }
        let path = path.appending(name)
        guard found.kind == .directory else {
            let file = try open(name, flags: O_RDONLY)
            let raw = file.raw
            try keepOwner(status, of: raw, path: path)
            try retrying("fchmod", path: path) { fchmod(raw, status.permissions) }
            return
        }
        let directory = try self.directory(name)
        for child in try directory.names() {
            try directory.give(child, attributesOf: status, directoryMode: directoryMode)
        }
        try keepOwner(status, of: directory.raw, path: path)
        try retrying("fchmod", path: path) { fchmod(directory.raw, directoryMode) }
        try directory.synchronize()
    }
}
