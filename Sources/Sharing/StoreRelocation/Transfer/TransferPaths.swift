import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The directories and names of a transfer.
struct TransferPaths {
    /// The old location.
    let source: StoreLocation
    /// The new location; nil if the set is discarded.
    let destination: StoreLocation?
    /// The database's name in its old directory while it is withdrawn.
    let hidden: FilePath.Component
    let container: GroupContainer
    private let id: TransferIdentifier
    private let stagesBesideDestination: Bool

    /// Creates the paths for a transfer of this process.
    init(_ transfer: Transfer, source: StoreLocation, container: GroupContainer) throws {
        try self.init(transfer, source: source, container: container) { try Directory($0) }
    }

    private init(
        _ transfer: Transfer, source: StoreLocation, container: GroupContainer, open: (FilePath) throws -> Directory
    ) throws {
        self.source = source
        self.container = container
        id = transfer.id
        hidden = transfer.id.hiddenName()
        if case .restore = transfer.purpose { stagesBesideDestination = true } else { stagesBesideDestination = false }
        destination =
            switch transfer.purpose {
            case .publish(let name): StoreLocation(directory: container.directory, name: try Self.name(name))
            case .archive: StoreLocation(directory: try container.archive(transfer.id), name: source.name)
            case .discard: nil
            case .restore(let directory, let name, _):
                StoreLocation(directory: try open(directory.path), name: try Self.name(name))
            }
    }

    /// True if the set keeps its name and gets other content.
    var isInPlace: Bool {
        destination?.directory.identity == source.directory.identity && destination?.name == source.name
    }

    /// Creates the paths from the journal alone, after a crash. Throws `UntrustedJournal`.
    init(_ journal: TransferJournal, container: GroupContainer) throws {
        let transfer = journal.transfer
        // The emptied archive of a restored set is removed before the journal.
        if case .restore(_, _, let taken) = transfer.purpose, journal.isFromArchive(of: container) {
            _ = try container.archive(taken)
        }
        let source = StoreLocation(
            directory: try journal.directory(transfer.directory.path), name: try Self.name(transfer.name))
        try self.init(transfer, source: source, container: container) { try journal.directory($0) }
    }

    /// Returns the directory for copies that have no names yet, on the file system of their destination. Creates it if
    /// missing.
    func staging() throws(SystemError) -> Directory {
        guard stagesBesideDestination, let destination else { return try container.staging(id) }
        return try GroupContainer.child(id.hiddenName("-staging"), of: destination.directory)
    }

    /// Returns the same directory if it exists. Creates nothing.
    func existingStaging() throws(SystemError) -> Directory? {
        guard stagesBesideDestination, let destination else { return try container.existingStaging(id) }
        let name = id.hiddenName("-staging")
        return try destination.directory.status(name) == nil ? nil : try destination.directory.directory(name)
    }

    func removeStaging() throws(SystemError) {
        guard stagesBesideDestination, let destination else { return try container.removeStaging(id) }
        try destination.directory.removeTree(id.hiddenName("-staging"))
        try destination.directory.synchronize()
    }

    /// Returns true if this is the directory in which the transfer began, and not a copy from a backup, for example. In
    /// a copy, inode numbers identify nothing.
    func isSourceKnown(to transfer: Transfer) -> Bool {
        transfer.sourceDirectory.map { $0 == source.directory.identity } ?? true
    }

    func isDestinationKnown(to transfer: Transfer) -> Bool {
        guard let known = transfer.destinationDirectory, let destination else { return true }
        return known == destination.directory.identity
    }

    private static func name(_ stored: StoredPath) throws(SystemError) -> StoreName {
        guard stored.path.components.count == 1, let component = stored.path.lastComponent,
            let name = StoreName.existing(component)
        else { throw SystemError("open", .invalidArgument, path: stored.path) }
        return name
    }
}

extension Directory {
    /// Returns the identity of the file with this name, or nil if there is none.
    func identity(_ name: FilePath.Component) throws(SystemError) -> FileIdentity? { try status(name)?.identity }
}
