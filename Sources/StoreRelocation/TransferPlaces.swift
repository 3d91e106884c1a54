import GroupContainer
import LinuxSystem
import PersistentStore
import SystemPackage

/// The directories and names that a transfer works between.
struct TransferPlaces {
    /// The old place.
    let source: StoreLocation
    /// The new one; nil when the set is discarded.
    let destination: StoreLocation?
    /// What the database is called beside its old name while it is withdrawn.
    let hidden: FilePath.Component

    init(_ transfer: Transfer, source: StoreLocation, container: GroupContainer) throws {
        self.source = source
        hidden = transfer.id.hiddenName()
        destination =
            switch transfer.purpose {
            case .publish(let name): StoreLocation(directory: container.directory, name: try Self.name(name))
            case .archive: StoreLocation(directory: try container.archive(transfer.id), name: source.name)
            case .discard: nil
            }
    }

    /// From the journal alone, after a crash.
    init(_ transfer: Transfer, container: GroupContainer) throws {
        let source = StoreLocation(
            directory: try Directory(transfer.directory.path), name: try Self.name(transfer.name))
        try self.init(transfer, source: source, container: container)
    }

    private static func name(_ stored: StoredPath) throws(SystemError) -> StoreName {
        guard stored.path.components.count == 1, let component = stored.path.lastComponent,
            let name = StoreName(component)
        else { throw SystemError("open", .invalidArgument, path: stored.path) }
        return name
    }
}

extension Directory {
    /// Which file goes by the name; nil when none does.
    func identity(_ name: FilePath.Component) throws(SystemError) -> FileIdentity? { try status(name)?.identity }
}
