import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Finishes or undoes interrupted transfers. The caller must hold the group's lock.
package struct Recovery {
    let container: GroupContainer
    let report: (RelocationEvent) -> Void

    package init(container: GroupContainer, report: @escaping (RelocationEvent) -> Void) {
        self.container = container
        self.report = report
    }

    /// Returns true if the commit point was passed: the transfer is then finished, else undone.
    func willFinish(_ journal: TransferJournal) throws -> Bool {
        let (completion, state) = try TransferCompletion.interrupted(journal, container)
        return try completion.hasPassedCommitPoint(state)
    }

    /// Finishes or undoes the interrupted transfers of these stores. A transfer of another store that can be neither
    /// finished nor undone is postponed, since it doesn't affect these.
    func run(before stores: [StoreLocation]) throws {
        let isAffected = { (journal: TransferJournal) in
            stores.contains { journal.affects($0.name.database, in: $0.directory, of: container) }
        }
        if let journal = try container.journal() {
            do {
                try run()
            } catch {
                guard !isAffected(journal) else { throw error }
                try container.postponeJournal()
                report(
                    .note(
                        "\(Self.description(journal)) is postponed, since it can be neither finished nor undone now: \(error)"
                    ))
            }
        }
        for journal in try container.postponedJournals() where isAffected(journal) {
            try container.resumeJournal(journal.transfer.id)
            try run()
        }
    }

    /// Finishes or undoes every interrupted transfer of the group. Postpones those that fail, and returns their errors.
    package func runAll(_ willProcess: (TransferJournal) throws -> Void = { _ in }) throws -> [any Error] {
        var failures: [any Error] = []
        var next = try container.journal()
        var remaining = try container.postponedJournals()[...]
        while next != nil || !remaining.isEmpty {
            if next == nil, let postponed = remaining.popFirst() {
                try container.resumeJournal(postponed.transfer.id)
                next = postponed
            }
            guard let journal = next else { break }
            do {
                try willProcess(journal)
                try run()
            } catch {
                failures.append(error)
                try container.postponeJournal()
            }
            next = nil
        }
        return failures
    }

    private static func description(_ journal: TransferJournal) -> String {
        let path = journal.transfer.directory.path.pushing(journal.transfer.name.path)
        return "an interrupted relocation of \(PrintablePath(path))"
    }

    /// Finishes the interrupted transfer if its commit point was passed, else undoes it. Does nothing if there is none.
    package func run() throws {
        guard let journal = try container.journal() else { return }
        let (completion, state) = try TransferCompletion.interrupted(journal, container)
        let store = PrintablePath(completion.paths.source.path)
        let notes: [String]
        if try completion.hasPassedCommitPoint(state) {
            var receipt: RelocationReceipt?
            if case .committing(_, _, let kept) = state { receipt = kept }
            try completion.proveArrival(receipt)
            try completion.synchronizeArrival()
            notes = try completion.finish(receipt: receipt)
            report(.recovered("finished an interrupted relocation of \(store)"))
        } else {
            notes = try completion.undo(state)
            report(.recovered("undid an interrupted relocation of \(store)"))
        }
        for note in notes { report(.note(note)) }
    }
}

/// Side files without their database, a file of zero bytes, or a support folder without a store. They are moved out of
/// the way before a store is published among them.
struct LeftoverFiles {
    let container: GroupContainer
    let store: StoreLocation
    /// The identifier of the archive.
    let id: TransferIdentifier
    var gracePeriod = OpenerGracePeriod.standard
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
                reason: "leftovers without a store, found where a store was published"))
        let archive = try container.archive(id)
        var moved: [FilePath.Component] = []
        for file in names {
            // The link that a relocation left stays: the store replaces it.
            guard let found = try directory.status(file), file != name.database || found.kind == .regular
            else { continue }
            moved.append(file)
            if file == name.database, !assumeClosed {
                try moveUnopened(file, found.identity, to: archive)
                continue
            }
            // If killed here, a support folder without a store stays writable by its owner.
            try directory.move(file, to: file, in: archive)
        }
        try archive.synchronize()
        try directory.synchronize()
        let list = moved.map { PrintablePath($0).description }.joined(separator: ", ")
        return ["\(list), without a store in \(PrintablePath(directory.path)), went to \(PrintablePath(archive.path))"]
    }

    /// Moves the empty file under a lease, as stores are moved: a program may be about to create a store in it. Throws
    /// `StoreTransfer.RetryReason`; the file then has its name.
    private func moveUnopened(_ file: FilePath.Component, _ identity: FileIdentity, to archive: Directory) throws {
        let descriptor = try store.directory.open(file, flags: O_RDWR)
        let path = store.directory.path.appending(file)
        let raw = descriptor.raw
        func isStillEmpty() throws -> Bool {
            let found = try DatabaseFingerprint(raw, path: path)
            return found.size == 0 && found.identity == identity
        }
        try withLease(descriptor, of: identity) { isIntact in
            guard try isStillEmpty() else { throw StoreTransfer.RetryReason.changed }
            try store.directory.rename(file, to: file, in: archive, .refuse)
            guard isIntact() else {
                try archive.rename(file, to: file, in: store.directory, .refuse)
                throw StoreTransfer.RetryReason.held(identity)
            }
        }
        // By then, a program that had looked the name up has finished opening it.
        gracePeriod.wait()
        do {
            try withLease(descriptor, of: identity) { _ in
                guard try isStillEmpty() else { throw StoreTransfer.RetryReason.changed }
            }
        } catch {
            try archive.rename(file, to: file, in: store.directory, .refuse)
            throw error
        }
    }

    private func withLease(
        _ descriptor: borrowing Descriptor, of identity: FileIdentity, _ body: (_ isIntact: () -> Bool) throws -> Void
    ) throws {
        guard let lease = try StoreTransfer.lease(descriptor) else { throw StoreTransfer.RetryReason.held(identity) }
        let raw = descriptor.raw
        try withExtendedLifetime(lease) { _ in try body { FileLease.isIntact(raw) } }
    }

    /// Moves the files back, unless other files have taken their names.
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
