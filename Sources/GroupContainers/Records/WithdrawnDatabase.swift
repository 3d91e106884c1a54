import LinuxSystem
import SystemPackage

/// What can be done about a transfer that was interrupted without finishing or undoing all of it, by a program that
/// only wants its store: the database gets its old name back. Run only under the group's lock.
package enum WithdrawnDatabase {
    /// Whether a store has just been published under that name, and only book-keeping is left to do, or was when it was
    /// interrupted: it may be opened.
    package static func hasPublished(_ name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        try container.journals().contains { journal in
            guard case .publish(let published) = journal.transfer.purpose,
                case .committing(let database, _, _) = journal.state
            else { return false }
            return try published.path == FilePath(root: nil, [name])
                && container.directory.status(name)?.identity == database
        }
    }

    /// Whether a transfer that touches the group's store of that name is under way, or was interrupted.
    package static func isUnfinished(_ name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        try container.journals().contains { $0.concerns(name, in: container.directory, of: container) }
    }

    /// Puts the database back where it was when its old name had been withdrawn and it has not arrived at its new
    /// place. The journal stays: whoever relocates next finds the database at its old name, and undoes the rest.
    ///
    /// False when the transfer's support folder is on its way too, which is not a matter of one rename. Transfers of the
    /// group's other stores are left alone.
    package static func returnDatabase(of name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        try container.journals().filter { $0.concerns(name, in: container.directory, of: container) }
            .allSatisfy { try returnDatabase($0) }
    }

    private static func returnDatabase(_ journal: TransferJournal) throws -> Bool {
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
