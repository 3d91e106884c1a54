import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Proves that a directory that lost its name is what was copied, and that nobody can still write to it.
///
/// Each file must be the one that was copied, unchanged, and no process may have it open for writing; a store's
/// database may not be open at all (`F_SETLEASE` of fcntl(2)).
struct TreeCheck {
    let source: Directory
    let copy: TreeCopy
    let stores: Set<FilePath>
    let assumesClosed: Bool

    /// Throws `AppChanged` for a file that differs, and `AppFileHeld` for one that is open.
    func run() throws { try visit(source, copy.target, FilePath()) }

    private func visit(_ from: Directory, _ to: Directory, _ path: FilePath) throws {
        var expected = Set(try to.names())
        for name in try from.names() {
            guard let status = try from.status(name) else { throw AppChanged(path: from.path.appending(name)) }
            let inside = path.appending(name)
            if copy.isTransient(inside, status) { continue }
            if status.kind == .other, try from.specialFile(name) == .socket { continue }
            guard let made = try to.status(name), expected.remove(name) != nil, made.kind == status.kind,
                made.permissions == status.permissions
            else { throw AppChanged(path: from.path.appending(name)) }
            switch status.kind {
            case .directory: try visit(from.directory(name), to.directory(name), inside)
            case .regular: try checkFile(name, status, from, inside)
            case .symbolicLink:
                guard try from.linkTarget(name) == to.linkTarget(name) else {
                    throw AppChanged(path: from.path.appending(name))
                }
            case .other: break
            }
        }
        if let removed = expected.first { throw AppChanged(path: from.path.appending(removed)) }
    }

    private func checkFile(
        _ name: FilePath.Component, _ status: FileStatus, _ from: Directory, _ path: FilePath
    ) throws {
        let full = from.path.appending(name)
        let file = try from.open(name, flags: O_RDONLY)
        let isStore = stores.contains(path)
        do {
            let isClosed: Void? = try file.withLease(isStore ? .write : .read) { try checkContent(file, path, full) }
            guard isClosed != nil else { throw AppFileHeld(path: full, identity: status.identity) }
        } catch let error as SystemError {
            guard isStore, !assumesClosed else { return try checkContent(file, path, full) }
            throw RelocationFailure.app(
                .busy, "unprovable", "it can't be proved that no program has \(PrintablePath(full)) open: \(error)",
                "close its programs, then add --assume-closed")
        }
    }

    private func checkContent(_ file: borrowing Descriptor, _ path: FilePath, _ full: FilePath) throws {
        guard let entry = copy.manifest.entries[path],
            entry.source == AppManifest.Stamp(try file.status(path: full))
        else { throw AppChanged(path: full) }
    }
}

extension Descriptor {
    /// Runs `body` under a lease on the file. Returns nil if another descriptor is open. Throws `SystemError` where
    /// there are no leases.
    func withLease<Result>(
        _ kind: FileLease.Kind, _ body: () throws -> Result
    ) throws -> Result? {
        guard let lease = try FileLease(self, kind) else { return nil }
        return try withExtendedLifetime(lease) { _ in try body() }
    }
}

/// A file is open in another process.
struct AppFileHeld: Error {
    let path: FilePath
    let identity: FileIdentity
}
