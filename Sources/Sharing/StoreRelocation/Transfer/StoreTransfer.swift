import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Moves one set of files from its old name to its destination. At every instant exactly one of the two is the store,
/// and the disk says which.
///
/// The steps, each with what makes it safe:
///
/// 1. Quiesce: SQLite moves the content of the write-ahead log or a hot journal into the database.
/// 2. Stage: if a copy is needed, it is made and verified now, so that no opener waits for it.
/// 3. Lease: a write lease proves that no process has the database open. Everything is then checked again.
/// 4. Withdraw: the database and an empty directory of ours swap names, so that the old name can be neither opened nor
///    created. The lease, still intact, proves that nobody opened the database meanwhile, and is released.
/// 5. Grace period: a program that looked the old name up before may finish opening it. A second lease and a second
///    check detect such an opener, and the transfer is undone.
/// 6. Commit: the support folder moves first, the database last, to a name that nobody knew before.
/// 7. Complete: the receipt, the old set's retirement, write-ahead logging. The journal is removed last.
final class StoreTransfer {
    struct Options {
        var retries: RetryPolicy
        var gracePeriod: OpenerGracePeriod
        var assumeClosed: Bool
        /// True if the file can't be read as a database. SQLite is then not used.
        var opaque: Bool
        /// The content to publish, for a transfer that copies.
        var content = PublishedContent.same
        /// Checks the staged copy in another way than it was copied. Throws if it differs; nothing has changed then.
        var verify: (StoreLocation) throws -> Void = { _ in }
        /// True to give up before the deadline if the store stays open, so that others can acquire the group's lock.
        var yields = true
        /// Called once the store is at its destination and may be opened. Only cleanup follows.
        var didPublish: () -> Void
    }

    struct Outcome {
        var method: Transfer.Method
        var bytes: Int64
        var notes: [String]
        var transformed: TransformedStore?
        var setAside: SetAsideStore?
        /// What was merged into the store, and the archive of the store as it was before.
        var merge: MergeReport?
        var mergeArchive: FilePath?
        /// The archive of the original store, if the published one lacks some of it.
        var archive: FilePath?
    }

    /// The set is at its destination, and a later step failed. The next run completes it.
    struct Unfinished: Error {
        let path: FilePath
        let reason: any Error
    }

    let container: GroupContainer
    var transfer: Transfer
    let paths: TransferPaths
    let options: Options
    /// Returns true if the facts behind the plan still hold. Called when the database is quiescent.
    private let isStillValid: () throws -> Bool
    /// Returns true if the store in whose favour this one is removed still has its name. Called once this one has lost
    /// its own.
    let counterpartExists: () throws -> Bool
    let report: (RelocationEvent) -> Void
    var staged: StagedSet?
    private(set) var supportBytes: Int64 = 0
    var storeUUID: String?
    var hasCommitted = false
    /// Notes about another database's log that was set aside.
    var logNotes: [String] = []
    /// The time that the longest staging took.
    private var stagingTime = Duration.zero
    /// The longest time to hold the group's lock for a store that stays open.
    private static let patience = Duration.seconds(1)

    /// Writes the journal. From here on the transfer is either run, or undone by the next run. Throws, and writes
    /// nothing, if the transfer must not begin.
    init(
        _ transfer: Transfer, source: StoreLocation, container: GroupContainer, options: Options,
        isStillValid: @escaping () throws -> Bool, counterpartExists: @escaping () throws -> Bool = { true },
        report: @escaping (RelocationEvent) -> Void
    ) throws {
        try source.checkNothingIsMounted(includingFolder: transfer.support != nil)
        self.container = container
        var transfer = transfer
        transfer.sourceDirectory = source.directory.identity
        transfer.databaseBirth = source.directory.birth(source.name.database)
        // Write the journal before creating the archive's directory: undoing removes that directory.
        try container.write(TransferJournal(transfer: transfer, state: .intended))
        self.paths = try TransferPaths(transfer, source: source, container: container)
        transfer.destinationDirectory = paths.destination?.directory.identity
        self.transfer = transfer
        self.options = options
        self.isStillValid = isStillValid
        self.counterpartExists = counterpartExists
        self.report = report
    }

    var source: StoreLocation { paths.source }
    var completion: TransferCompletion { TransferCompletion(container: container, transfer: transfer, paths: paths) }

    /// Transfers the set, and waits until the deadline for programs that have it open.
    ///
    /// Throws `RetryReason` at the deadline, and any other error. Before the commit point, the set is then at its
    /// old place again. If undoing failed too, or after the commit point, the journal stays for the next run.
    func run() throws -> Outcome {
        do {
            try prepare()
            var observations = HolderObservations()
            var obstructedSince: ContinuousClock.Instant?
            return try options.retries.run(
                .attempt, of: source.path,
                willWait: { reason, delay in
                    let since = obstructedSince ?? .now
                    obstructedSince = since
                    // Don't discard a copy that took long to make for a program that closes soon.
                    if options.yields, since.duration(to: .now) > max(Self.patience, stagingTime) { throw reason }
                    guard case RetryReason.held(let identity) = reason, delay > .milliseconds(10) else { return }
                    let holders = FileHolder.of(identity)
                    if observations.shouldReport(holders) { report(.waiting(for: holders)) }
                }
            ) {
                do {
                    return try attempt()
                } catch {
                    guard let reason = RetryReason(error, of: transfer.database) else { throw error }
                    try options.retries.checkCancelled(source.path)
                    throw try source.directory.status(source.name.database) == nil ? RetryReason.gone : reason
                }
            }
        } catch {
            try undo(after: error)
            throw error
        }
    }

    private func undo(after error: any Error) throws {
        let unfinished = Unfinished(path: (paths.destination ?? source).path, reason: error)
        // Nothing is undone past the commit point: the next run finishes it.
        if hasCommitted { throw unfinished }
        guard let journal = try container.journal() else { return }
        if try completion.hasPassedCommitPoint(journal.state) { throw unfinished }
        // Whoever replaced this store while it had its name did so on purpose.
        let keepsCopies = journal.state != .intended
        for note in try completion.undo(journal.state, keepsCopies: keepsCopies) { report(.note(note)) }
    }

    func writeJournal(_ state: TransferState) throws {
        try container.write(TransferJournal(transfer: transfer, state: state))
    }

    /// Moves the empty directory beside the store. It comes from the group container: if it can't be renamed across,
    /// neither can the store, and the set is copied.
    private func prepare() throws {
        let staging = try paths.staging()
        let placeholder: FilePath.Component = "placeholder"
        // Writable: only then may a user other than root rename it into another directory.
        try staging.makeDirectory(placeholder, mode: 0o700)
        do {
            try staging.rename(placeholder, to: paths.hidden, in: source.directory, .refuse)
            try source.directory.directory(paths.hidden).setPermissions(0o500)
        } catch {
            guard error.errno == .improperLink else { throw error }
            transfer.copies = paths.destination != nil
            try writeJournal(.intended)
            try staging.removeDirectory(placeholder)
            try source.directory.makeDirectory(paths.hidden, mode: 0o700)
        }
        if case .archive(let reason) = transfer.purpose {
            // After the journal, so that undoing removes the note.
            var note = ArchiveNote(
                id: transfer.id, name: source.name.database, from: source.path, at: Date(), reason: reason)
            note.hasSupport = transfer.support != nil
            note.hadWAL = transfer.hadWAL
            try container.write(note)
        }
        try measureSupport()
    }

    private func measureSupport() throws {
        guard let support = transfer.support, try source.directory.identity(source.name.support) == support else {
            return
        }
        supportBytes = try source.directory.bytes(under: source.name.support)
    }

    /// Takes along a folder of external data that a program has made or replaced while it was waited for.
    private func followSupport() throws {
        // A store that keeps its name and its content keeps its folder.
        let keepsSupport = paths.isInPlace && options.content.archiveReason == nil
        let found = try source.directory.status(source.name.support)
        guard !keepsSupport, let found, found.kind == .directory, found.identity != transfer.support else { return }
        try source.checkExternalDataIsUnshared()
        try source.checkNothingIsMounted()
        transfer.support = found.identity
        try writeJournal(.intended)
        try measureSupport()
    }

    private func attempt() throws -> Outcome {
        // Before anything is written: an unreadable store stays byte for byte as it is.
        if storeUUID == nil { storeUUID = try readUUID() }
        try quiesce()
        if storeUUID == nil { storeUUID = try readUUID() }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDWR)
        try descriptor.synchronize(path: source.path)
        let fingerprint = try fingerprint(descriptor)
        // Anybody who may write to the directory may have replaced the file.
        guard fingerprint.identity == transfer.database else { throw RetryReason.changed }
        // After the fingerprint: a write in between changes it.
        guard try isStillValid() else { throw RetryReason.changed }
        try followSupport()
        // A program that was writing the store at the decision may have been killed since.
        if case .publish = transfer.purpose, !options.opaque { try StoreSnapshot(source).checkWhole() }
        let start = ContinuousClock.now
        try stage(descriptor, fingerprint)
        stagingTime = max(stagingTime, start.duration(to: .now))
        try options.retries.checkCancelled(source.path)
        let withdrawn = try withdraw(descriptor, expecting: fingerprint)
        let outcome = try commit(descriptor, withdrawn)
        if (try? descriptor.status())?.links == 0, fingerprint.size >= Self.largeFile { descriptor.closeElsewhere() }
        return outcome
    }

    /// The file size, in bytes, from which a separate process closes the last descriptor.
    private static let largeFile: Int64 = 64 << 20
}

/// The holders seen so far, so that each change is reported once.
struct HolderObservations {
    private var reported: [FileHolder]?
    private var last: [FileHolder]?

    /// Returns true if these holders should be reported. Reports an empty list only after two empty scans: a holder may
    /// exit before the first.
    mutating func shouldReport(_ holders: [FileHolder]) -> Bool {
        defer { last = holders }
        guard holders != reported, !holders.isEmpty || last == holders else { return false }
        reported = holders
        return true
    }
}
