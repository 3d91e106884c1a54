import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage

/// A copy of a directory, with everything that cp(1) keeps with `-a`: modes, owners, times of the last write,
/// extended attributes, access control lists, hard links, holes, symbolic links, FIFOs and devices.
///
/// Each pass makes the copy equal to the source, and copies only what differs. Sockets are left out, and so are the
/// files of a closed store that SQLite makes again.
final class TreeCopy {
    let source: Directory
    let target: Directory
    let manifest: AppManifest
    /// Stores whose logs SQLite has emptied: their wal-index, and an empty log, are no content.
    var quiescent: Set<FilePath> = []
    /// Files that a recipe declares to be without value.
    var leave: [PathPattern] = []
    /// Receives the path of each file that was copied, with its size.
    var didCopy: (FilePath, Int64) throws -> Void = { _, _ in }
    /// Polled before each file, and while one is copied.
    var isCancelled: () -> Bool = { false }
    /// Returns true if this process has a SQLite connection to the file. Closing a descriptor would drop its locks
    /// (https://sqlite.org/howtocorrupt.html, §2.2), so that stays open until `closeKept`.
    var isHeld: (FileIdentity) -> Bool = { _ in false }

    private(set) var resumedFiles = 0
    /// The attributes that the copies of files could not be given.
    private(set) var lostAttributes: [FilePath: [String]] = [:]
    private var passes = 0
    private var changes = 0
    private var links: [FileIdentity: FilePath] = [:]
    private var kept: [CInt] = []
    private static let attempts = 3

    init(_ source: Directory, to target: Directory, manifest: AppManifest) {
        (self.source, self.target, self.manifest) = (source, target, manifest)
    }

    deinit { closeKept() }

    /// Closes the descriptors of stores. Call it once the connections are closed.
    func closeKept() {
        for raw in kept { Glibc.close(raw) }
        kept = []
    }

    /// Makes the copy equal to the source as it is now. Returns the number of files that had to be changed.
    func pass() throws -> Int {
        let isFirst = passes == 0
        passes += 1
        (changes, links) = (0, [:])
        try visit(source, target, FilePath(), isFirst: isFirst)
        try manifest.flush()
        return changes
    }

    /// Records the copies of closed stores as they are now, in which paths were changed.
    func recordRewritten() throws {
        for store in quiescent {
            guard let name = store.lastComponent,
                let status = try target.descendant(store.removingLastComponent()).status(name)
            else { continue }
            manifest.addRewritten(store, AppManifest.Stamp(status))
        }
        try manifest.flush()
    }

    /// True for a file that is left out by name.
    func isLeftOut(_ path: FilePath) -> Bool { leave.contains { $0.matches(path) } }

    /// True for a file beside a closed store that has no content, and for one that is left out by name. A symbolic link
    /// is left out itself.
    func isTransient(_ path: FilePath, _ status: FileStatus) -> Bool {
        if status.kind == .directory { return false }
        if isLeftOut(path) { return true }
        guard status.kind == .regular else { return false }
        let bytes = path.bytes
        for (suffix, isEmptyOnly) in [("-shm", false), ("-wal", true)] where bytes.suffix(4).elementsEqual(suffix.utf8)
        {
            guard let store = FilePath(bytes: bytes.dropLast(4)), quiescent.contains(store) else { continue }
            return !isEmptyOnly || status.size == 0
        }
        return false
    }

    // MARK: - A directory

    private func visit(_ from: Directory, _ to: Directory, _ path: FilePath, isFirst: Bool) throws {
        let own = try from.status()
        if try to.status().permissions & 0o700 != 0o700 { try to.setPermissions(0o700) }
        let names = try from.names()
        try removeOthers(than: Set(names), in: to, path)
        for name in names {
            if isCancelled() { throw RelocationFailure.cancelled(source.path) }
            guard let status = try from.status(name) else {
                changes += 1
                continue
            }
            let inside = path.appending(name)
            if isTransient(inside, status) {
                try to.removeTree(name)
                continue
            }
            switch status.kind {
            case .directory: try copyDirectory(name, from, to, inside, isFirst: isFirst)
            case .regular: try copyFile(name, status, from, to, inside, isFirst: isFirst)
            case .symbolicLink: try copyLink(name, status, from, to, inside)
            case .other: try copySpecial(name, status, from, to)
            }
        }
        try giveAttributes(own, from, to, path)
    }

    private func removeOthers(than names: Set<FilePath.Component>, in to: Directory, _ path: FilePath) throws {
        for name in try to.names() where !names.contains(name) {
            try to.removeTree(name)
            changes += 1
        }
    }

    private func copyDirectory(
        _ name: FilePath.Component, _ from: Directory, _ to: Directory, _ path: FilePath, isFirst: Bool
    ) throws {
        let existing = try to.status(name)
        if existing?.kind != .directory {
            try to.removeTree(name)
            try to.makeDirectory(name, mode: 0o700)
            changes += 1
        }
        try visit(from.directory(name), to.directory(name), path, isFirst: isFirst)
    }

    private func giveAttributes(
        _ status: FileStatus, _ from: Directory, _ to: Directory, _ path: FilePath
    ) throws {
        try ExtendedAttributes.removeInheritedLists(of: to.raw, path: to.path)
        try keepOwner(status, of: to.raw, path: to.path)
        let lost = try ExtendedAttributes.copy(
            from: from.raw, to: to.raw, mode: status.permissions, path: to.path)
        lostAttributes[path] = lost.isEmpty ? nil : lost
        let times = [status.modifiedTime, status.modifiedTime]
        try retrying("futimens", path: to.path) { futimens(to.raw, times) }
    }

    // MARK: - A file

    private func copyFile(
        _ name: FilePath.Component, _ status: FileStatus, _ from: Directory, _ to: Directory, _ path: FilePath,
        isFirst: Bool
    ) throws {
        let existing = try to.status(name)
        if let entry = manifest.entries[path], entry.source == AppManifest.Stamp(status),
            let existing, entry.copy.hasContent(of: AppManifest.Stamp(existing))
        {
            if status.links > 1, links[status.identity] == nil { links[status.identity] = path }
            if isFirst {
                resumedFiles += 1
                try didCopy(path, status.size)
            }
            return
        }
        if existing != nil { try to.removeTree(name) }
        changes += 1
        if try link(name, status, to, path) { return }
        for attempt in 1... {
            if let entry = try copyOnce(name, status, from, to, path) {
                try manifest.add(path, entry)
                break
            }
            guard attempt < Self.attempts else { throw AppChanged(path: from.path.appending(name)) }
            try to.removeFile(name)
        }
        if status.links > 1 { links[status.identity] = path }
        try didCopy(path, status.size)
    }

    /// Makes a hard link to the copy of another name of the file. Returns false if there is none yet.
    private func link(
        _ name: FilePath.Component, _ status: FileStatus, _ to: Directory, _ path: FilePath
    ) throws -> Bool {
        guard status.links > 1, let first = links[status.identity], let entry = manifest.entries[first],
            entry.source == AppManifest.Stamp(status)
        else { return false }
        let (from, target, firstPath) = (self.target.raw, to.raw, first)
        try retrying("link", path: to.path.appending(name)) {
            firstPath.withPlatformString { first in name.withPlatformString { linkat(from, first, target, $0, 0) } }
        }
        try manifest.add(path, entry)
        try didCopy(path, 0)
        return true
    }

    /// Copies the file. Returns nil if it changed meanwhile.
    private func copyOnce(
        _ name: FilePath.Component, _ status: FileStatus, _ from: Directory, _ to: Directory, _ path: FilePath
    ) throws -> AppManifest.Entry? {
        // Two writes within one tick of the clock may have the same time.
        if !FileTime.isSettled(status.changed) { pause(FileTime.resolution * 2) }
        let file = try from.open(name, flags: O_RDONLY)
        let before = try file.status(path: from.path.appending(name))
        let copy = VerifiedCopy(
            source: from.path.appending(name), destination: to, name: name, isSynced: false,
            isCancelled: isCancelled, progress: { _ in })
        let copied: VerifiedCopy.Result
        do {
            copied = try copy.run(from: file)
        } catch {
            if isHeld(before.identity) { kept.append(file.release()) }
            throw error
        }
        let after = try file.status(path: from.path.appending(name))
        let hash = try copied.hash ?? ContentHash.of(file, path: from.path.appending(name))
        if isHeld(before.identity) { kept.append(file.release()) }
        guard AppManifest.Stamp(before) == AppManifest.Stamp(after),
            try from.status(name)?.identity == before.identity, let made = try to.status(name)
        else { return nil }
        lostAttributes[path] = copied.lostAttributes.isEmpty ? nil : copied.lostAttributes
        return AppManifest.Entry(source: AppManifest.Stamp(after), content: hash, copy: AppManifest.Stamp(made))
    }

    private func copyLink(
        _ name: FilePath.Component, _ status: FileStatus, _ from: Directory, _ to: Directory, _ path: FilePath
    ) throws {
        let target = try from.linkTarget(name)
        let existing = try to.status(name)
        let stamp = AppManifest.Stamp(status)
        let entry = AppManifest.Entry(source: stamp, content: "link:" + AppManifest.encoded(target), copy: stamp)
        // A killed run may have made the link and lost its line.
        if manifest.entries[path]?.content != entry.content { try manifest.add(path, entry) }
        if existing?.kind == .symbolicLink, try to.linkTarget(name) == target, existing?.modified == status.modified {
            return
        }
        try to.removeTree(name)
        try to.makeSymbolicLink(name, to: target)
        try to.give(status, to: name)
        changes += 1
    }

    private func copySpecial(
        _ name: FilePath.Component, _ status: FileStatus, _ from: Directory, _ to: Directory
    ) throws {
        guard let special = try from.specialFile(name), special != .socket else { return try to.removeTree(name) }
        let existing = try to.status(name)
        // A killed run may have made it without its attributes, of which the time is the last.
        if try to.specialFile(name) == special, existing?.permissions == status.permissions,
            existing?.modified == status.modified
        {
            return
        }
        try to.removeTree(name)
        try to.make(special, name)
        try to.give(status, to: name)
        changes += 1
    }
}

/// A file changed while it was copied, or after it.
struct AppChanged: Error {
    let path: FilePath
}

extension ContentHash {
    /// Returns the hash of a file's whole content.
    static func of(_ file: borrowing Descriptor, path: FilePath) throws(SystemError) -> String {
        var hash = ContentHash()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 17, alignment: 4096)
        defer { buffer.deallocate() }
        var offset: Int64 = 0
        while true {
            let count = try file.read(into: buffer, at: offset, path: path)
            if count == 0 { return hash.text() }
            hash.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            offset += Int64(count)
        }
    }
}
