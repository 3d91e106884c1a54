import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Moves one set of files from its old name to its destination. At every instant exactly one of the two is the store,
/// and the disk says which.
///
/// `attempt` shows the steps, `withdraw` and `commit` what they do under a lease. Each state of the journal is written
/// before what it announces.
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
    let isStillValid: () throws -> Bool
    /// Returns true if the store in whose favour this one is removed still has its name. Called once this one has lost
    /// its own.
    let counterpartExists: () throws -> Bool
    let report: (RelocationEvent) -> Void
    var staged: StagedSet?
    var supportBytes: Int64 = 0
    var storeUUID: String?
    var hasCommitted = false
    /// Notes about another database's log that was set aside.
    var logNotes: [String] = []
    /// The time that the longest staging took.
    var stagingTime = Duration.zero
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

    // MARK: - The steps

    /// Takes each step once. An error before the commit point leaves the store at its old name, or gives that back.
    private func attempt() throws -> Outcome {
        // The journal says `intended`. Quiesce: SQLite moves the content of the log or a hot journal into the database.
        // An unreadable store stays byte for byte as it is.
        if storeUUID == nil { storeUUID = try readUUID() }
        try quiesce()
        if storeUUID == nil { storeUUID = try readUUID() }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDWR)
        try descriptor.synchronize(path: source.path)
        let quiescent = try fingerprint(descriptor)
        try checkPlan(quiescent)

        // Stage: if a copy is needed, it is made and verified now, so that no opener waits for it.
        try stage(descriptor, quiescent)
        try options.retries.checkCancelled(source.path)

        // `withdrawn`: the old name can be neither opened nor created.
        let withdrawn = try withdraw(descriptor, expecting: quiescent)
        // A program that looked the old name up before may finish opening it. The commit's lease and check detect it.
        options.gracePeriod.wait()

        // `committing`: the set gets a name that nobody knew before. Its database's arrival is the commit point.
        let set = WithdrawnSet(database: withdrawn, support: try source.directory.identity(source.name.support))
        let receipt = try self.receipt(set)
        try commit(set, receipt, descriptor)
        hasCommitted = true
        announce()

        // Complete: the receipt, the old set's retirement, write-ahead logging. The journal is removed last.
        let notes = try completion.finish(receipt: receipt)
        if (try? descriptor.status())?.links == 0, quiescent.size >= Self.largeFile { descriptor.closeElsewhere() }
        return outcome(set, receipt, notes: notes)
    }

    /// Swaps the names of the database and an empty directory of ours, under a write lease: it proves that no process
    /// has the database open, and, still intact after the swap, that nobody opened it meanwhile. Returns the database's
    /// fingerprint as it is then.
    private func withdraw(
        _ descriptor: borrowing Descriptor, expecting expected: DatabaseFingerprint
    ) throws -> DatabaseFingerprint {
        let raw = descriptor.raw
        let fingerprint = try withLease(descriptor) { isIntact in
            guard try isUnchanged(raw, since: expected) else { throw RetryReason.changed }
            try moveSideFilesAway()
            try setFormatVersion(raw, writeAhead: false)
            do {
                let fingerprint = try DatabaseFingerprint(raw, path: source.path)
                transfer.closedSupport = try closedSupport
                try writeJournal(.withdrawn)
                try swapNames()
                guard try source.directory.identity(paths.hidden) == transfer.database else {
                    // The swapped file is not the one that was proved closed: swap it back.
                    try swapNames()
                    throw RetryReason.changed
                }
                guard isIntact(), try counterpartExists() else { throw RetryReason.changed }
                return fingerprint
            } catch {
                try revertWithdrawal(raw, isClosed: isIntact())
                throw error
            }
        }
        try source.directory.synchronize()
        return fingerprint
    }

    /// Gives the set its new names, under a second lease and after a second check.
    private func commit(
        _ set: WithdrawnSet, _ receipt: RelocationReceipt?, _ descriptor: borrowing Descriptor
    ) throws {
        let raw = descriptor.raw
        do {
            try withLease(descriptor) { isIntact in
                guard try isStillWithdrawn(set, raw), try counterpartExists(), isIntact() else {
                    throw RetryReason.changed
                }
                let arriving = self.arriving(set)
                try writeJournal(
                    .committing(database: arriving.database, support: arriving.support, receipt: receipt))
                try arrive()
                // No program has it open yet. If this fails, `finish` tries again.
                if completion.arrivesInWAL, !transfer.copies { try? setFormatVersion(raw, writeAhead: true) }
            }
        } catch let reason as RetryReason {
            // A program had looked the old name up before it was withdrawn and uses the database: give the name back.
            try revertWithdrawal(raw, isClosed: false)
            throw reason
        }
    }

    /// Swaps the names back and restores the header. No process has the database open yet.
    private func revertWithdrawal(_ raw: CInt, isClosed: Bool) throws {
        if try source.directory.identity(paths.hidden) == transfer.database { try swapNames() }
        if isClosed, transfer.hadWAL { try setFormatVersion(raw, writeAhead: true) }
        try writeJournal(.intended)
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
