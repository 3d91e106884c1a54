import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The files of a branch, held open: a program that ends meanwhile takes nothing of them away.
///
/// The process must have no SQLite connection to the database: closing a file of it drops that connection's locks.
struct HeldBranch {
    private final class File {
        let file: BranchFile
        let suffix: String
        let descriptor: Descriptor
        let status: FileStatus

        init(_ file: BranchFile, _ suffix: String) throws {
            (self.file, self.suffix) = (file, suffix)
            descriptor = try file.open()
            status = try descriptor.status(path: file.path)
        }
    }

    private let branch: OrphanedBranch
    /// The database first, and a log after it: what is checkpointed while they are copied is in the log, too, until
    /// that is begun anew.
    private let files: [File]

    /// Opens the files that are still there. Throws `BranchFile.Lost` if the database or its log isn't.
    init(_ branch: OrphanedBranch) throws {
        self.branch = branch
        files =
            try [File(branch.database, "")] + [branch.log].compactMap { try $0.map { try File($0, "-wal") } }
            + Self.open(branch.lostLogs, "-wal", after: branch.log)
            + Self.open([branch.indexFile] + branch.indexes.map(\.file), "-shm")
            + Self.open([branch.journal], "-journal")
    }

    private static func open(_ files: [BranchFile?], _ suffix: String, after first: BranchFile? = nil) -> [File] {
        var found = [first?.identity].compactMap(\.self)
        return files.compactMap { file in
            guard let file, !found.contains(file.identity) else { return nil }
            found.append(file.identity)
            return try? File(file, found.count == 1 ? suffix : "\(suffix)-\(found.count)")
        }
    }

    /// Returns a file of the branch as it is open here, if it is: no end of the program takes that away.
    func file(_ file: BranchFile) -> BranchFile {
        guard let held = files.first(where: { $0.file.identity == file.identity }) else { return file }
        return BranchFile(
            path: FilePath("/proc/self/fd").appending("\(held.descriptor.raw)"), identity: file.identity)
    }

    /// The bytes that the files had when they were opened.
    var size: UInt64 { files.reduce(0) { $0 + UInt64(max($1.status.size, 0)) } }

    /// Copies the files as they are, durably, to new ones whose names begin with `name`.
    func copy(to directory: Directory, as name: FilePath.Component) throws {
        for source in files {
            guard let name = name.appending(source.suffix) else { continue }
            let path = directory.path.appending(name)
            try source.file.copy(source.descriptor, as: name, in: directory)
            let copy = try directory.open(name, flags: O_RDWR)
            try keepOwner(source.status, of: copy.raw, path: path)
            try copy.synchronize(path: path)
        }
        try directory.synchronize()
    }

    /// Removes a copy of the branch that was not finished: the program has all that it has. If the program ends
    /// meanwhile, these files are the only ones left, and they take the copy's place.
    ///
    /// - Parameters:
    ///   - name: The copy's directory, in the one of its run.
    ///   - record: The description of the copy.
    /// - Returns: False if the program has ended, or closed one of the files.
    func discard(_ name: FilePath.Component, in run: Directory, _ record: BranchRecord) throws -> Bool {
        try run.removeTree(name)
        // Looked at while the files are held: what the program had until now is not lost before this is known.
        guard branch.isLost else { return true }
        try keep(in: GroupContainer.child(name, of: run), record)
        return false
    }

    /// Copies the files, as they are, to where a copy of the branch would be made.
    func keep(in place: Directory, _ record: BranchRecord) throws {
        try record.write(in: place)
        try copy(to: place, as: SavedBranches.unfinishedName)
    }
}

extension [OrphanedBranch] {
    /// Removes a saved copy that these branches make superfluous, while they certainly have what it has.
    ///
    /// - Parameter run: The directory of the copy's run.
    /// - Returns: False if the copy stays, or other files of the branch took its place: its program has ended.
    func discard(_ copy: SavedBranches.Saved, in run: Directory) throws -> Bool {
        guard let name = copy.location.directory.path.lastComponent else { return false }
        if copy.isOfName { return try discardStoreAtName(copy, name, in: run) }
        let branch = first { copy.branch.isOfSameFiles(as: $0.record) }
        guard let branch, let held = try? HeldBranch(branch) else { return false }
        return try held.discard(name, in: run, BranchRecord(name: copy.name, branch: copy.branch))
    }

    /// Removes a copy of the store at its name. A program that closes its lost log would write that to the store, and
    /// remove the log at the name: a reader's locks keep it from both.
    private func discardStoreAtName(
        _ copy: SavedBranches.Saved, _ name: FilePath.Component, in run: Directory
    ) throws -> Bool {
        let sharing = filter { $0.database.identity == copy.branch.database.identity && $0.log != nil }
        let locks = sharing.compactMap { branch in branch.indexFile.flatMap { BranchReadLock(branch.database, $0) } }
        guard !sharing.isEmpty, locks.count == sharing.count, !sharing.contains(where: \.isLost)
        else { return false }
        try withExtendedLifetime(locks) { try run.removeTree(name) }
        return true
    }
}
