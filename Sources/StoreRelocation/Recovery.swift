import FoundationEssentials
import GroupContainer
import LinuxSystem
import PersistentStore
import SystemPackage

/// Brings a transfer that was interrupted to its end. Run only under the group's lock.
package struct Recovery {
    let container: GroupContainer
    let report: (RelocationEvent) -> Void

    package init(container: GroupContainer, report: @escaping (RelocationEvent) -> Void) {
        self.container = container
        self.report = report
    }

    /// Whether the commit point was passed, so that it is finished and not undone.
    func willFinish(_ journal: TransferJournal) throws -> Bool {
        let (end, state) = try TransferEnd.interrupted(journal, container)
        return try end.hasArrived(state)
    }

    /// Finishes it when its commit point was passed, else undoes it. Nothing when none was interrupted.
    package func run() throws {
        guard let journal = try container.journal() else { return }
        let (end, state) = try TransferEnd.interrupted(journal, container)
        let store = PrintablePath(end.places.source.path)
        let notes: [String]
        if try end.hasArrived(state) {
            var receipt: RelocationReceipt?
            if case .committing(_, _, let kept) = state { receipt = kept }
            try end.synchronizeArrival()
            notes = try end.finish(receipt: receipt)
            report(.recovered("finished an interrupted relocation of \(store)"))
        } else {
            notes = try end.undo(state)
            report(.recovered("undid an interrupted relocation of \(store)"))
        }
        for note in notes { report(.note(note)) }
    }
}

/// Side files without their database, a file of zero bytes, or a support folder that no store has: out of the way
/// before a store is published among them.
struct Remains {
    let container: GroupContainer
    let store: StoreLocation
    /// Of the archive.
    let id: TransferIdentifier

    private var names: [FilePath.Component] {
        let name = store.name
        return [name.wal, name.journal, name.sharedMemory, name.support, name.database]
    }

    func setAside() throws -> [String] {
        let name = store.name
        let directory = store.directory
        try container.write(
            ArchiveNote(
                id: id, name: name.database, from: store.path, at: Date(),
                reason: "it stood where a store was published, and no store was there"))
        let archive = try container.archive(id)
        for file in names {
            guard try directory.status(file) != nil else { continue }
            // Killed there, a folder that no store has is left open to its owner.
            try directory.move(file, to: file, in: archive)
        }
        try archive.synchronize()
        try directory.synchronize()
        return ["what was left at \(PrintablePath(store.path)) is in \(PrintablePath(archive.path))"]
    }

    /// The way back, where nothing has taken the names since.
    func putBack() throws {
        let archive = try container.archive(id)
        for file in names where try archive.status(file) != nil {
            try archive.move(file, to: file, in: store.directory)
        }
        try store.directory.synchronize()
        try archive.synchronize()
        try container.removeEmptiedArchive(id)
    }
}
