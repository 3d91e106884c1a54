import Glibc
import LinuxSystem
import SystemPackage

/// The file `branch.json` beside a copy of a branch in `.groupstore/rescue`. It is there before the copy has the name
/// of a finished one.
package struct BranchRecord: Codable, Sendable {
    package var version = 1
    /// The store's name in its directory.
    package var name: StoredPath
    package var branch: ArchiveNote.Branch
    /// Why the branch can't be joined, if its files are kept as they were.
    package var damage: String?

    package init(name: FilePath.Component, branch: ArchiveNote.Branch) {
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.branch = branch
    }

    private static let fileName: FilePath.Component = "branch.json"

    /// True for the record's name, and for one that a killed process has left half written.
    package static func isRecord(_ name: FilePath.Component) -> Bool {
        name == fileName || name == fileName.appending(".new")
    }

    /// Writes the record, durably.
    package func write(in directory: Directory) throws { try Record.write(self, Self.fileName, in: directory) }

    /// Returns the record in a copy's directory. Returns nil if there is none that can be read, or if another user than
    /// root, this one and the owner may have written it.
    ///
    /// - Parameter owner: The owner of the directory of copies.
    package static func read(in directory: Directory, owner: uid_t) -> BranchRecord? {
        guard let (record, status) = try? Record.readWithStatus(Self.self, fileName, in: directory),
            status.isWritten(by: [0, geteuid(), owner])
        else { return nil }
        return record
    }
}

extension FileStatus {
    /// True if nobody else than these users can have written the file.
    func isWritten(by users: Set<uid_t>) -> Bool { users.contains(owner) && permissions & 0o022 == 0 }
}
