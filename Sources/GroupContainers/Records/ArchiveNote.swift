import FoundationEssentials
import LinuxSystem
import SystemPackage

/// The file `about.json` beside an archived set. It says what the set is and why it is there.
package struct ArchiveNote: Codable, Sendable, Equatable {
    package var version = 1
    package var id: TransferIdentifier
    package var name: StoredPath
    package var from: StoredPath
    package var at: Date
    /// One sentence for the user.
    package var reason: String

    package init(id: TransferIdentifier, name: FilePath.Component, from: FilePath, at: Date, reason: String) {
        self.id = id
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.from = StoredPath(from)
        self.at = at
        self.reason = reason
    }
}

extension GroupContainer {
    static let noteName: FilePath.Component = "about.json"

    package func write(_ note: ArchiveNote) throws {
        try Record.write(note, Self.noteName, in: archive(note.id))
    }
}
