import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A copy of a store's database, journal and WAL in a private directory under `$TMPDIR` or `/tmp`, removed with the
/// last reference. It takes as much space as the store.
final class PrivateCopy {
    let location: StoreLocation
    private let parent: Directory
    private let name: FilePath.Component

    init(of original: StoreLocation) throws {
        let base = ScratchDirectory.place
        var template = base.appending("groupstore-XXXXXX").withPlatformString { pointer in
            Array(UnsafeBufferPointer(start: pointer, count: strlen(pointer) + 1))
        }
        guard mkdtemp(&template) != nil else { throw SystemError.last("mkdtemp", path: base) }
        guard let path = FilePath(bytes: template.dropLast().map { UInt8(bitPattern: $0) }),
            let name = path.lastComponent, let copied = StoreName("store")
        else { throw SystemError("mkdtemp", .invalidArgument, path: base) }
        self.name = name
        parent = try Directory(base)
        location = StoreLocation(directory: try parent.directory(name), name: copied)
        // The database comes last: without it, nothing can be read without its journal.
        try copy(original.name.journal, as: copied.journal, from: original)
        try detachFromSuperJournal()
        try copy(original.name.wal, as: copied.wal, from: original)
        try copy(original.name.database, as: copied.database, from: original)
    }

    deinit { try? parent.removeTree(name) }

    /// Makes the copied journal roll back by itself while its super-journal exists. SQLite would remove the
    /// super-journal afterwards if no journal at the places that it lists names it, as after the stores were renamed
    /// (pager_delsuper, pager.c): the store itself would count as committed then.
    private func detachFromSuperJournal() throws {
        guard let superJournal = try SuperJournal.name(in: location), FileStatus(following: superJournal) != nil else {
            return
        }
        let (name, path) = (location.name.journal, location.directory.path.appending(location.name.journal))
        let journal = try location.directory.open(name, flags: O_RDWR)
        let length = RollbackJournal.length(ofSuperJournal: superJournal)
        try journal.truncate(to: journal.status(path: path).size - length, path: path)
    }

    private func copy(
        _ name: FilePath.Component, as other: FilePath.Component, from original: StoreLocation
    ) throws {
        guard try original.directory.status(name) != nil else { return }
        let source = try original.directory.open(name, flags: O_RDONLY)
        let target = try location.directory.open(other, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        let path = original.directory.path.appending(name)
        if name == original.name.database { try original.check(source.status(path: path).identity) }
        var copy = FileCopy(from: path, to: location.directory.path.appending(other))
        // A program that appends to the file must not make this last.
        copy.maximumSize = try source.status(path: path).size
        // A sparse file may be far larger than the data written to it.
        copy.checksHoles = false
        _ = try copy.run(from: source, to: target)
    }
}
