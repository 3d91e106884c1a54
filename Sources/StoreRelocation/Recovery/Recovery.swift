import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
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
        let (end, state) = try TransferCompletion.interrupted(journal, container)
        return try end.hasArrived(state)
    }

    /// Brings to its end what was interrupted of these stores. What was of other stores, and can't be brought to its end,
    /// is postponed: it is no obstacle to these.
    func run(before places: [StoreLocation]) throws {
        let isConcerned = { (journal: TransferJournal) in
            places.contains { journal.concerns($0.name.database, in: $0.directory, of: container) }
        }
        if let journal = try container.journal() {
            do {
                try run()
            } catch {
                guard !isConcerned(journal) else { throw error }
                try container.postponeJournal()
                report(.note("\(Self.words(journal)) waits, since it can't be brought to its end now: \(error)"))
            }
        }
        for journal in try container.postponedJournals() where isConcerned(journal) {
            try container.resumeJournal(journal.transfer.id)
            try run()
        }
    }

    /// Brings everything to its end that was interrupted in the group. What can't be is postponed; returns why.
    package func runAll(_ willDo: (TransferJournal) throws -> Void = { _ in }) throws -> [any Error] {
        var failures: [any Error] = []
        var next = try container.journal()
        var rest = try container.postponedJournals()[...]
        while next != nil || !rest.isEmpty {
            if next == nil, let postponed = rest.popFirst() {
                try container.resumeJournal(postponed.transfer.id)
                next = postponed
            }
            guard let journal = next else { break }
            do {
                try willDo(journal)
                try run()
            } catch {
                failures.append(error)
                try container.postponeJournal()
            }
            next = nil
        }
        return failures
    }

    private static func words(_ journal: TransferJournal) -> String {
        let path = journal.transfer.directory.path.pushing(journal.transfer.name.path)
        return "an interrupted relocation of \(PrintablePath(path))"
    }

    /// Finishes it when its commit point was passed, else undoes it. Nothing when none was interrupted.
    package func run() throws {
        guard let journal = try container.journal() else { return }
        let (end, state) = try TransferCompletion.interrupted(journal, container)
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
struct LeftoverFiles {
    let container: GroupContainer
    let store: StoreLocation
    /// Of the archive.
    let id: TransferIdentifier
    var drain = OpenerGracePeriod.standard
    var assumeClosed = false

    private var names: [FilePath.Component] {
        let name = store.name
        return [name.database, name.wal, name.journal, name.sharedMemory, name.support]
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
            guard let found = try directory.status(file) else { continue }
            if file == name.database, found.kind == .regular, !assumeClosed {
                try moveUnopened(file, found.identity, to: archive)
                continue
            }
            // Killed there, a folder that no store has is left open to its owner.
            try directory.move(file, to: file, in: archive)
        }
        try archive.synchronize()
        try directory.synchronize()
        return ["what was left at \(PrintablePath(store.path)) is in \(PrintablePath(archive.path))"]
    }

    /// Some program may be about to make a store of the file: it goes as stores do, while nobody has it open. Throws
    /// `StoreTransfer.RetryReason`; the file has its name then.
    private func moveUnopened(_ file: FilePath.Component, _ identity: FileIdentity, to archive: Directory) throws {
        let descriptor = try store.directory.open(file, flags: O_RDWR)
        let path = store.directory.path.appending(file)
        let raw = descriptor.raw
        func isStillEmpty() throws -> Bool {
            let found = try DatabaseFingerprint(raw, path: path)
            return found.size == 0 && found.identity == identity
        }
        try withLease(descriptor, identity) { isIntact in
            guard try isStillEmpty() else { throw StoreTransfer.RetryReason.changed }
            try store.directory.rename(file, to: file, in: archive, .refuse)
            guard isIntact() else {
                try archive.rename(file, to: file, in: store.directory, .refuse)
                throw StoreTransfer.RetryReason.held(identity)
            }
        }
        // Whoever had looked the name up before is through with opening it then.
        drain.perform()
        do {
            try withLease(descriptor, identity) { _ in
                guard try isStillEmpty() else { throw StoreTransfer.RetryReason.changed }
            }
        } catch {
            try archive.rename(file, to: file, in: store.directory, .refuse)
            throw error
        }
    }

    private func withLease(
        _ descriptor: borrowing Descriptor, _ identity: FileIdentity, _ body: (_ isIntact: () -> Bool) throws -> Void
    ) throws {
        guard let lease = try StoreTransfer.lease(descriptor) else { throw StoreTransfer.RetryReason.held(identity) }
        let raw = descriptor.raw
        try withExtendedLifetime(lease) { _ in try body { FileLease.isIntact(raw) } }
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
