import CommandSupport
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// A removal of a group as it is on the disk: under way, failed, or interrupted.
///
/// The record `.groupstore-removal/removal.json` is written before the group's directory loses its name. Once that
/// directory is empty but for `.groupstore`, that one is moved into `.groupstore-removal`, this one beside the group's
/// directory, and the latter is removed: the kernel refuses that unless it is empty. The records go last. So until
/// nothing else is left, the group can be put back with its records.
struct InterruptedRemoval {
    let record: RemovalRecord
    let parent: Directory
    /// The group's directory; nil if it is removed already, and its records are left.
    let directory: Directory?
    /// `.groupstore-removal`.
    let aside: Directory

    var name: FilePath.Component? { record.name.path.lastComponent }

    /// The path at which the rest is now.
    var path: FilePath {
        guard let directory else { return parent.path.appending(record.recordsName) }
        guard let name, (try? parent.status(name))?.identity == directory.identity else {
            return parent.path.appending(record.hiddenName)
        }
        return parent.path.appending([name, RemovalRecord.directoryName])
    }

    /// Returns the interrupted removals of the group's directory with that name. A directory counts only with a record
    /// that names it.
    static func all(of name: FilePath.Component, in parent: Directory) throws -> [InterruptedRemoval] {
        // Without the right to list the parent directory, nobody can have renamed anything in it for this user.
        guard let names = try? parent.names() else { return [] }
        return try names.compactMap { candidate in
            guard String(decoding: candidate.bytes, as: UTF8.self).contains(".removing-"),
                try parent.status(candidate)?.kind == .directory
            else { return nil }
            let found = try parent.directory(candidate)
            if let record = RemovalRecord.read(in: found) {
                guard record.recordsName == candidate, record.name.path.lastComponent == name else { return nil }
                let isThere = try parent.status(record.hiddenName)?.kind == .directory
                let directory = try isThere ? parent.directory(record.hiddenName) : nil
                guard directory.map({ $0.identity.inode == record.directory.inode }) ?? true else { return nil }
                return InterruptedRemoval(record: record, parent: parent, directory: directory, aside: found)
            }
            let removal = try inside(found, in: parent)
            return removal?.record.hiddenName == candidate && removal?.name == name ? removal : nil
        }
    }

    /// Returns the removal whose record is in the group's directory, or nil if there is none.
    static func inside(_ directory: Directory, in parent: Directory) throws -> InterruptedRemoval? {
        guard try directory.status(RemovalRecord.directoryName)?.kind == .directory else { return nil }
        let aside = try directory.directory(RemovalRecord.directoryName)
        guard let record = RemovalRecord.read(in: aside), record.directory.inode == directory.identity.inode else {
            return nil
        }
        return InterruptedRemoval(record: record, parent: parent, directory: directory, aside: aside)
    }

    /// Removes the empty directory that a removal has left that was killed after its very last file. Returns true if
    /// there was one.
    static func removeEmptyRecords(of name: FilePath.Component, in parent: Directory) throws(SystemError) -> Bool {
        var isFound = false
        for candidate in (try? parent.names()) ?? [] where RemovalRecord.isRecordsName(candidate, of: name) {
            guard let status = try parent.status(candidate), status.kind == .directory, status.owner == geteuid(),
                try parent.directory(candidate).names().isEmpty
            else { continue }
            // The kernel removes no directory that isn't empty.
            try parent.removeDirectory(candidate)
            isFound = true
        }
        return isFound
    }

    /// Acquires the group's lock, wherever its file is now. Returns nil if the removal is under way.
    func lock() throws -> OpenFileLock? {
        let isMoved = try aside.status(GroupContainer.bookkeepingName) != nil
        return try GroupContainer(directory: isMoved ? aside : directory ?? aside).lock()
    }

    /// Puts the group back under its name, with everything that is still there. The caller holds the group's lock. A
    /// file whose name is taken stays in `.groupstore-removal`, and the error says so.
    func putBack() throws {
        guard let directory, let name else { return }
        if try parent.status(record.recordsName)?.identity == aside.identity {
            try parent.rename(record.recordsName, to: RemovalRecord.directoryName, in: directory, .refuse)
        }
        try returnBookkeeping(to: directory)
        var failure: SystemError?
        if try aside.status(FileRemoval.asideName) != nil {
            failure = try aside.directory(FileRemoval.asideName).moveFiles(backTo: directory)
        }
        if try parent.status(record.hiddenName)?.identity == directory.identity {
            try parent.rename(record.hiddenName, to: name, in: parent, .refuse)
            try parent.synchronize()
        }
        if let failure { throw failure }
        try removeRecord()
        try directory.removeDirectory(RemovalRecord.directoryName)
        try directory.synchronize()
    }

    /// Moves `.groupstore` back. A process that had the group's directory open may have made another one meanwhile. It
    /// gives way if it holds nothing and nobody uses it.
    private func returnBookkeeping(to directory: Directory) throws {
        let name = GroupContainer.bookkeepingName
        guard try aside.status(name) != nil else { return }
        guard try directory.status(name) != nil else {
            return try aside.rename(name, to: name, in: directory, .refuse)
        }
        let made = try GroupInventory(directory).entries.filter { $0.name == name }
        guard made.allSatisfy({ !$0.hasContent }), let lock = try GroupContainer(directory: directory).lock() else {
            throw SystemError("rename", .fileExists, path: directory.path.appending(name))
        }
        try aside.rename(name, to: name, in: directory, .exchange)
        try removeRecords(lock)
    }

    /// Removes what is left of a group whose directory is gone: its records. Throws `CommandFailure` if anything else
    /// is among them.
    func finish(_ lock: borrowing OpenFileLock) throws {
        try parent.synchronize()
        try removeRecords(lock)
        try removeRecord()
        try parent.removeDirectory(record.recordsName)
        try parent.synchronize()
    }

    /// Removes `.groupstore` as it was seen: the package's records, and no other file.
    private func removeRecords(_ lock: borrowing OpenFileLock) throws {
        let seen = try GroupInventory(aside).entries.filter { $0.name == GroupContainer.bookkeepingName }
        if let stranger = seen.flatMap(\.all).first(where: { $0.hasContent && $0.status.kind != .directory }) {
            throw GroupRemoval.changed(aside.path.pushing(stranger.path))
        }
        try remove(seen, from: aside)
    }

    private func remove(_ entries: [GroupInventory.Entry], from parent: Directory) throws {
        for entry in entries where try parent.status(entry.name)?.identity == entry.status.identity {
            guard entry.status.kind == .directory else {
                try parent.removeFile(entry.name)
                continue
            }
            try remove(entry.children, from: parent.directory(entry.name))
            try parent.removeDirectory(entry.name)
        }
    }

    private func removeRecord() throws {
        try removeEmptyDirectories(FileRemoval.asideName, in: aside)
        try RemovalRecord.remove(from: aside)
    }

    /// Removes the places that files were moved to. A file there keeps them.
    func removeEmptyDirectories(_ name: FilePath.Component, in parent: Directory) throws(SystemError) {
        guard try parent.status(name) != nil else { return }
        let directory = try parent.directory(name)
        for child in try directory.names() { try removeEmptyDirectories(child, in: directory) }
        try parent.removeDirectory(name)
    }
}
