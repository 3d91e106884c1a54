import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Removes what was copied from its old place. Each file is compared at that moment with what was copied and with what
/// the new place has, while a lease keeps other processes from opening it. What differs, or is new, stays.
struct TreeRemoval {
    let manifest: AppManifest
    let copy: TreeCopy
    /// The directory at the new place.
    let published: Directory
    /// Called after each file was removed.
    let didRemove: () throws -> Void

    struct Result {
        /// The files that had to stay.
        fileprivate(set) var kept = KeptFiles()
        /// The files that a recipe declares to be without value, which have no copy.
        fileprivate(set) var leftOut: [FilePath] = []
    }

    private struct OldFile {
        let name: FilePath.Component
        let directory: Directory
        /// The directory of the same path at the new place; nil if there is none.
        let new: Directory?
        /// The path in the moved directory.
        let path: FilePath
    }

    private enum Verdict {
        case removed
        case stays(String)
    }

    private static let changed = Verdict.stays("open, or not what was copied")
    private static let unproved = Verdict.stays("missing or different at the new place")

    func run(_ name: FilePath.Component, in parent: Directory) throws -> Result {
        var result = Result()
        try visit(name, in: parent, published, FilePath(), &result)
        return result
    }

    private func visit(
        _ name: FilePath.Component, in parent: Directory, _ new: Directory?, _ path: FilePath, _ result: inout Result
    ) throws {
        // Mounted content belongs to somebody else.
        guard try !parent.isMountPoint(name) else { return result.kept.add(path, "mounted") }
        let before = result.kept.count
        let directory = try parent.ownDirectory(name)
        for child in try directory.names() {
            guard let status = try directory.status(child) else { continue }
            let file = OldFile(name: child, directory: directory, new: new, path: path.appending(child))
            do {
                if status.kind == .directory {
                    try visit(child, in: directory, try? new?.directory(child), file.path, &result)
                    continue
                }
                switch try remove(file, status, &result) {
                case .removed: try didRemove()
                case .stays(let reason): result.kept.add(file.path, reason)
                }
            } catch let error as SystemError {
                // Immutable, say, or on a disk with an error. The others need not stay for it.
                result.kept.add(file.path, "\(error.errno)")
            }
        }
        if result.kept.count == before { try parent.removeDirectory(name) }
    }

    /// Removes the file if its content is elsewhere.
    private func remove(_ file: OldFile, _ status: FileStatus, _ result: inout Result) throws -> Verdict {
        switch status.kind {
        case .directory: return Self.changed
        case .symbolicLink, .other:
            if copy.isLeftOut(file.path) {
                result.leftOut.append(file.path)
                break
            }
            // Others than links have no content.
            guard status.kind == .symbolicLink else { break }
            let target = try file.directory.linkTarget(file.name)
            guard manifest.entries[file.path]?.content == "link:" + AppManifest.encoded(target) else {
                return Self.changed
            }
            guard try file.new?.hasLink(file.name, to: target) == true else { return Self.unproved }
        case .regular:
            guard copy.isTransient(file.path, status) else { return try removeCopied(file) }
            if copy.isLeftOut(file.path) {
                // A store may have come there since the recipe was checked.
                guard try !AppSurvey.isStore(file.name, in: file.directory) else { return .stays("a store") }
                result.leftOut.append(file.path)
            }
        }
        try file.directory.removeFile(file.name)
        return .removed
    }

    private func removeCopied(_ file: OldFile) throws -> Verdict {
        guard let entry = manifest.entries[file.path] else { return Self.changed }
        let descriptor = try file.directory.open(file.name, flags: O_RDONLY)
        let raw = descriptor.raw
        do {
            // Nil: somebody has it open, and may write to it.
            return try descriptor.withLease(.write) {
                try remove(file, descriptor, entry) { FileLease.isIntact(raw) }
            } ?? Self.changed
        } catch let error as SystemError where error.call.hasPrefix("fcntl") {
            // Without leases, the move was allowed to go on.
            return try remove(file, descriptor, entry) { true }
        }
    }

    private func remove(
        _ file: OldFile, _ descriptor: borrowing Descriptor, _ entry: AppManifest.Entry, isIntact: () -> Bool
    ) throws -> Verdict {
        let path = file.directory.path.appending(file.name)
        guard try ContentHash.of(descriptor, path: path) == entry.content else { return Self.changed }
        guard try isPublished(file, entry) else { return Self.unproved }
        guard isIntact() else { return Self.changed }
        try file.directory.removeFile(file.name)
        return .removed
    }

    /// True if the new place has what was copied: the copy, unchanged since it was verified, or a file with the same
    /// content.
    private func isPublished(_ file: OldFile, _ entry: AppManifest.Entry) throws -> Bool {
        guard let new = file.new, let status = try new.status(file.name), status.kind == .regular else { return false }
        let stamp = AppManifest.Stamp(status)
        if stamp == entry.copy || stamp == manifest.rewritten[file.path] { return true }
        let published = try new.open(file.name, flags: O_RDONLY)
        return try ContentHash.of(published, path: new.path.appending(file.name)) == entry.content
    }
}

/// The files that a removal had to keep.
struct KeptFiles {
    private(set) var count = 0
    /// The first of them, each with the reason.
    private var first: [String] = []

    var isEmpty: Bool { count == 0 }
    private var list: String { first.joined(separator: ", ") + (count > first.count ? " and others" : "") }

    /// Returns a sentence about the files; nil if there are none.
    func note(in place: FilePath) -> String? {
        isEmpty ? nil : "\(Counted(count, "file stays", "files stay")) in \(PrintablePath(place)): \(list)"
    }

    mutating func add(_ path: FilePath, _ reason: String) {
        count += 1
        if first.count < 5 { first.append("\(PrintablePath(path)) (\(reason))") }
    }
}

extension Directory {
    /// Returns a directory in this one whose files are to be removed, which its mode may not allow.
    func ownDirectory(_ name: FilePath.Component) throws -> Directory {
        let directory = try self.directory(name)
        let status = try directory.status()
        if status.permissions & 0o300 != 0o300, status.owner == geteuid() {
            try directory.setPermissions(status.permissions | 0o700)
        }
        return directory
    }

    /// True if the name is a symbolic link with this target.
    func hasLink(_ name: FilePath.Component, to target: FilePath) throws -> Bool {
        try status(name)?.kind == .symbolicLink && linkTarget(name) == target
    }
}
