import LinuxSystem
import SystemPackage

/// Gives a database its old name back after an interrupted transfer, for a program that only needs its store. The rest
/// of the transfer is neither finished nor undone. The caller must hold the group's lock.
package enum WithdrawnDatabase {
    /// Returns true if a store was just published under that name and only cleanup remains, or remained at the
    /// interruption. Such a store may be opened.
    package static func hasPublished(_ name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        try container.journals().contains { journal in
            guard case .publish(let published) = journal.transfer.purpose,
                case .committing(let database, _, _) = journal.state
            else { return false }
            return try published.path == FilePath(root: nil, [name])
                && container.directory.status(name)?.identity == database
        }
    }

    /// Returns true if a transfer that touches the group's store of that name is in progress or was interrupted.
    package static func isUnfinished(_ name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        try container.journals().contains { $0.affects(name, in: container.directory, of: container) }
    }

    /// Gives the database its old name back if it was withdrawn and hasn't arrived at its destination. The journal
    /// stays: the next relocation finds the database at its old name and undoes the rest.
    ///
    /// Returns false if the support folder of the transfer is moving too: one rename can't undo that. Ignores transfers
    /// of the group's other stores.
    package static func returnDatabase(of name: FilePath.Component, in container: GroupContainer) throws -> Bool {
        try container.journals().filter { $0.affects(name, in: container.directory, of: container) }
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
