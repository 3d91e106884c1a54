import Glibc
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

/// Removes the copy of a move that is taken back. Each file is compared at that moment with the directory that it was
/// made from; what that doesn't have any more stays in the copy.
struct CopyRemoval {
    let manifest: AppManifest
    /// True if SQLite may have made files beside the copies of stores, to change paths in them.
    let isRewritten: Bool

    /// Returns the files that had to stay.
    func run(_ name: FilePath.Component, in staging: Directory, of source: Directory) throws -> KeptFiles {
        var kept = KeptFiles()
        try visit(name, in: staging, source, FilePath(), &kept)
        return kept
    }

    private func visit(
        _ name: FilePath.Component, in parent: Directory, _ source: Directory?, _ path: FilePath,
        _ kept: inout KeptFiles
    ) throws {
        let before = kept.count
        let directory = try parent.ownDirectory(name)
        for child in try directory.names() {
            guard let status = try directory.status(child) else { continue }
            let inside = path.appending(child)
            if status.kind == .directory {
                try visit(child, in: directory, try? source?.directory(child), inside, &kept)
            } else if try isProved(child, status, in: directory, source, inside) {
                try directory.removeFile(child)
            } else {
                kept.add(inside, "missing or different at the old place")
            }
        }
        if kept.count == before { try parent.removeDirectory(name) }
    }

    private func isProved(
        _ name: FilePath.Component, _ copied: FileStatus, in directory: Directory, _ source: Directory?,
        _ path: FilePath
    ) throws -> Bool {
        switch copied.kind {
        case .directory: return false
        // These have no content.
        case .other: return true
        case .symbolicLink: return try source?.hasLink(name, to: directory.linkTarget(name)) ?? false
        case .regular: break
        }
        let entry = manifest.entries[path]
        if isRewritten, entry == nil, let store = path.databaseOfSideFile, manifest.entries[store] != nil {
            return true
        }
        guard let source, let status = try source.status(name), status.kind == .regular else { return false }
        // What was changed in a copy since was changed by the move.
        if let entry, entry.copy.inode == copied.identity.inode, entry.source == AppManifest.Stamp(status) {
            return true
        }
        let file = try source.open(name, flags: O_RDONLY)
        let full = source.path.appending(name)
        if let entry, entry.copy.inode == copied.identity.inode,
            try ContentHash.of(file, path: full) == entry.content
        {
            return true
        }
        // A copy without a line in the manifest may not be complete.
        let copy = try directory.open(name, flags: O_RDONLY)
        return try file.begins(with: copy, path: full)
    }
}

extension Descriptor {
    /// True if the file has all bytes of another one at its beginning.
    fileprivate func begins(with other: borrowing Descriptor, path: FilePath) throws -> Bool {
        let size = 1 << 17
        let (own, others) = (
            UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096),
            UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
        )
        defer {
            own.deallocate()
            others.deallocate()
        }
        var offset: Int64 = 0
        while true {
            let expected = try other.read(into: others, at: offset, path: path)
            if expected == 0 { return true }
            let count = try read(into: own, at: offset, path: path)
            guard count >= expected, own.prefix(expected).elementsEqual(others.prefix(expected)) else { return false }
            offset += Int64(expected)
        }
    }
}
