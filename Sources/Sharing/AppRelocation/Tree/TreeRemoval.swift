import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Removes what was copied from its old place. Each file is compared with what was copied at that moment, while a lease
/// keeps other processes from opening it. What differs, or is new, stays.
struct TreeRemoval {
    let manifest: AppManifest
    let copy: TreeCopy
    /// Called after each file was removed.
    let didRemove: () throws -> Void

    /// The files that had to stay.
    struct Kept {
        fileprivate(set) var count = 0
        /// The first of them, each with the reason.
        private var first: [String] = []

        var isEmpty: Bool { count == 0 }
        var list: String { first.joined(separator: ", ") + (count > first.count ? " and others" : "") }

        fileprivate mutating func add(_ path: FilePath, _ reason: String) {
            count += 1
            if first.count < 5 { first.append("\(PrintablePath(path)) (\(reason))") }
        }
    }

    /// Returns the files that had to stay.
    func run(_ name: FilePath.Component, in parent: Directory) throws -> Kept {
        var kept = Kept()
        try visit(name, in: parent, FilePath(), &kept)
        return kept
    }

    private func visit(
        _ name: FilePath.Component, in parent: Directory, _ path: FilePath, _ kept: inout Kept
    ) throws {
        // Mounted content belongs to somebody else.
        guard try !parent.isMountPoint(name) else { return kept.add(path, "mounted") }
        let before = kept.count
        let directory = try parent.directory(name)
        let status = try directory.status()
        if status.permissions & 0o300 != 0o300, status.owner == geteuid() {
            try directory.setPermissions(status.permissions | 0o700)
        }
        for child in try directory.names() {
            guard let status = try directory.status(child) else { continue }
            let inside = path.appending(child)
            do {
                if status.kind == .directory {
                    try visit(child, in: directory, inside, &kept)
                } else if try isProved(child, status, in: directory, inside) {
                    try didRemove()
                } else {
                    kept.add(inside, "open, or not what was copied")
                }
            } catch let error as SystemError {
                // Immutable, say, or on a disk with an error. The others need not stay for it.
                kept.add(inside, "\(error.errno)")
            }
        }
        if kept.count == before { try parent.removeDirectory(name) }
    }

    /// Removes the file if its content is elsewhere. Returns false if it stays.
    private func isProved(
        _ name: FilePath.Component, _ status: FileStatus, in directory: Directory, _ path: FilePath
    ) throws -> Bool {
        switch status.kind {
        case .directory: return false
        // These have no content.
        case .other: break
        case .symbolicLink:
            let target = "link:" + AppManifest.encoded(try directory.linkTarget(name))
            guard manifest.entries[path]?.content == target else { return false }
        case .regular:
            if copy.isTransient(path, status) { break }
            return try removeFile(name, in: directory, path)
        }
        try directory.removeFile(name)
        return true
    }

    private func removeFile(_ name: FilePath.Component, in directory: Directory, _ path: FilePath) throws -> Bool {
        let full = directory.path.appending(name)
        guard let entry = manifest.entries[path] else { return false }
        let file = try directory.open(name, flags: O_RDONLY)
        let raw = file.raw
        do {
            // Nil: somebody has it open, and may write to it.
            return try file.withLease(.write) {
                guard try ContentHash.of(file, path: full) == entry.content, FileLease.isIntact(raw) else {
                    return false
                }
                try directory.removeFile(name)
                return true
            } ?? false
        } catch let error as SystemError where error.call.hasPrefix("fcntl") {
            // Without leases, the move was allowed to go on.
            guard try ContentHash.of(file, path: full) == entry.content else { return false }
            try directory.removeFile(name)
            return true
        }
    }
}
