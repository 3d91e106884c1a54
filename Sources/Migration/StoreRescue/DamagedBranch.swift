import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// The files of a branch that can't be joined, copied as they are: its database, logs, indexes and journal.
struct DamagedBranch {
    /// An open file: a program that ends meanwhile takes nothing away.
    private final class Source {
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
    private let record: BranchRecord

    init(_ branch: OrphanedBranch, _ record: BranchRecord) { (self.branch, self.record) = (branch, record) }

    /// Copies the files into the directory of a copy that failed, which is removed. That copy stays if the files are
    /// gone by now, or if less than half of the free space would stay free.
    func keep(in directory: Directory, because damage: String) throws {
        var record = record
        record.damage = damage
        try record.write(in: directory)
        let former = try names(in: directory, "building")
        let isCopied = (try? copy(to: directory)) ?? false
        let copied = try names(in: directory, "raw")
        for name in isCopied ? former : copied { try directory.removeFile(name) }
        // The database last: its name says that all are there.
        for name in (isCopied ? copied : former).sorted(by: { $0.string > $1.string }) {
            let suffix = name.string.drop { $0 != "-" }
            guard let new = SavedBranches.damagedName.appending(String(suffix)) else { continue }
            try directory.rename(name, to: new, in: directory, .refuse)
        }
        try directory.synchronize()
    }

    private func names(in directory: Directory, _ start: String) throws -> [FilePath.Component] {
        try directory.names().filter { $0.string == start || $0.string.hasPrefix(start + "-") }
    }

    /// Returns false if there is too little space.
    private func copy(to directory: Directory) throws -> Bool {
        // A log after its database, as what is checkpointed meanwhile is in the log until that is begun anew.
        let sources =
            try [Source(branch.database, "")] + open([branch.log] + branch.lostLogs, "-wal")
            + open([branch.indexFile] + branch.indexes.map(\.file), "-shm") + open([branch.journal], "-journal")
        let size = sources.reduce(0) { $0 + UInt64($1.status.size) }
        guard try size * 2 <= directory.fileSystem().available else { return false }
        for source in sources {
            guard let name = FilePath.Component("raw" + source.suffix) else { continue }
            let path = directory.path.appending(name)
            try source.file.copy(source.descriptor, as: name, in: directory)
            let copy = try directory.open(name, flags: O_RDWR)
            try keepOwner(source.status, of: copy.raw, path: path)
            try copy.synchronize(path: path)
        }
        return true
    }

    /// Opens those files that are still there.
    private func open(_ files: [BranchFile?], _ suffix: String) -> [Source] {
        var found: [FileIdentity] = []
        return files.compactMap { file in
            guard let file, !found.contains(file.identity) else { return nil }
            found.append(file.identity)
            return try? Source(file, found.count == 1 ? suffix : "\(suffix)-\(found.count)")
        }
    }
}
