import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// The files of a branch that can't be joined, copied as they are: its database, logs, indexes and journal.
struct DamagedBranch {
    private let branch: OrphanedBranch
    private let record: BranchRecord
    /// The name of files that are being copied.
    private static let rawName: FilePath.Component = "raw"

    init(_ branch: OrphanedBranch, _ record: BranchRecord) { (self.branch, self.record) = (branch, record) }

    /// Copies the files into the directory of a copy that failed, which is removed. That copy stays if the files are
    /// gone by now, or if less than half of the free space would stay free.
    func keep(in directory: Directory, because damage: String) throws {
        var record = record
        record.damage = damage
        try record.write(in: directory)
        let former = try names(in: directory, "building")
        let isCopied = (try? copy(to: directory)) ?? false
        let copied = try names(in: directory, Self.rawName.string)
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
        let held = try HeldBranch(branch)
        guard try held.size * 2 <= directory.fileSystem().available else { return false }
        try held.copy(to: directory, as: Self.rawName)
        return true
    }
}
