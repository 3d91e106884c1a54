import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The stores whose write-ahead logging a transfer has turned off, and that a program kept from being turned on again.
/// They are remembered until it is on: a later run must not take the rollback mode for the store's own.
struct PendingWriteAhead {
    let container: GroupContainer

    /// Returns true if the store uses write-ahead logging, or did before an earlier transfer.
    func wasOn(_ snapshot: StoreSnapshot) throws -> Bool {
        guard let header = snapshot.header, let identity = snapshot.status?.identity else { return false }
        if header.journalMode == .writeAhead { return true }
        let birth = snapshot.location.directory.birth(snapshot.location.name.database)
        return try container.storesInRollbackMode().stores.contains { $0.isFile(identity, birth: birth) }
    }

    func remember(_ store: StoreLocation) throws {
        guard let identity = try store.directory.identity(store.name.database) else { return }
        let birth = store.directory.birth(store.name.database)
        let others = try container.storesInRollbackMode().stores.filter { !$0.isFile(identity, birth: birth) }
        try container.setStoresInRollbackMode(
            others + [
                StoreInRollbackMode(
                    directory: store.directory.path, name: store.name.database, file: identity, birth: birth)
            ])
    }

    /// Forgets a file: its mode is as it should be, or it is gone.
    func forget(_ file: FileIdentity) throws {
        let known = try container.storesInRollbackMode().stores
        try container.setStoresInRollbackMode(known.filter { $0.file != file })
    }

    /// Turns write-ahead logging on for each store that nobody uses at the moment. The caller holds the group's lock.
    /// Forgets a store that isn't where it was.
    ///
    /// - Parameter opener: Closes the stores that this process has open itself.
    func retry(relinquishedBy opener: (any StoreOpener)?) throws {
        let (stores, writer) = try container.storesInRollbackMode()
        // The journal of an interrupted transfer comes first.
        guard !stores.isEmpty, try container.journals().isEmpty else { return }
        try container.setStoresInRollbackMode(
            stores.filter { store in
                let path = store.directory.path.pushing(store.name.path)
                opener?.relinquish(path)
                defer { opener?.reacquire(path) }
                return try isPending(store, writer: writer)
            })
    }

    private func isPending(_ pending: StoreInRollbackMode, writer: uid_t) throws -> Bool {
        guard pending.name.path.components.count == 1,
            let name = pending.name.path.lastComponent.flatMap(StoreName.existing),
            let directory = try? Directory(pending.directory.path),
            // As with a journal: another user's word counts for that user's own directories.
            let owner = try? directory.status().owner, [0, geteuid(), owner].contains(writer)
        else { return false }
        let store = StoreLocation(directory: directory, name: name)
        guard let identity = try directory.identity(name.database),
            pending.isFile(identity, birth: directory.birth(name.database))
        else { return false }
        // A store that can't be changed now is tried by the next run.
        return (try? JournalMode.enableWriteAhead(at: store, patience: .zero)) != true
    }
}
