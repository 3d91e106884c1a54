import LinuxSystem
import SystemPackage

/// What can be done about a transfer that was interrupted without finishing or undoing all of it, by a program that
/// only wants its store: the database gets its old name back. Run only under the group's lock.
package enum WithdrawnDatabase {
    /// Whether a store has just been published under that name, and only book-keeping is left to do, or was when it was
    /// interrupted: it may be opened.
    package static func hasPublished(_ name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        guard let journal = try container.journal(), case .publish(let published) = journal.transfer.purpose,
            case .committing(let database, _, _) = journal.state
        else { return false }
        return try published.path == FilePath(root: nil, [name])
            && container.directory.status(name)?.identity == database
    }

    /// Puts the database back where it was when its old name had been withdrawn and it has not arrived at its new
    /// place. The journal stays: whoever relocates next finds the database at its old name, and undoes the rest.
    ///
    /// False when the transfer's support folder is on its way too, which is not a matter of one rename.
    package static func returnDatabase(in container: GroupContainer) throws -> Bool {
        guard let journal = try container.journal() else { return true }
        if case .committing(_, .some, _) = journal.state { return false }
        let transfer = journal.transfer
        let directory = try journal.directory(transfer.directory.path)
        guard let name = transfer.name.path.lastComponent, transfer.name.path.components.count == 1 else {
            return false
        }
        let hidden = transfer.id.hiddenName()
        guard try directory.status(hidden)?.identity == transfer.database else { return true }
        switch try directory.status(name)?.kind {
        case nil: try directory.rename(hidden, to: name, in: directory, .refuse)
        case .directory: try directory.rename(hidden, to: name, in: directory, .exchange)
        default: return false
        }
        try directory.synchronize()
        return true
    }
}
