import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Takes one set of files from its old name to its new place, so that at every instant one of the two is the
/// store and the disk says which.
///
/// The way, each step with what makes it safe:
///
/// 1. quiesce: what is in the write-ahead log or a hot journal goes into the database, through SQLite;
/// 2. stage: where a copy is needed, it is made and verified now, so that nobody waits for it;
/// 3. a write lease proves that nobody has the database open; then what was seen is looked at again;
/// 4. withdraw: the database and an empty directory of ours swap names, so that the old name can neither be opened
///    nor created anew; the lease, still intact, proves that nobody opened it meanwhile, and is released;
/// 5. drain: whoever looked the old name up before may finish opening it; a second lease and a second look find
///    such an opener, and then all is put back;
/// 6. commit: the support folder first, the database last, under a name that nobody knew before;
/// 7. the receipt, the old set's retirement, write-ahead logging; the journal is removed last.
final class StoreTransfer {
    struct Options {
        var deadline: Deadline
        var drain: OpenerGracePeriod
        var assumeClosed: Bool
        /// Not a database as far as anybody can see: SQLite isn't asked.
        var opaque: Bool
        /// What is published, for a transfer that copies.
        var content = PublishedContent.same
        /// What is known to be missing in it: then the store is kept as it was, whatever becomes of the old place.
        var losses = RemovedContent.none
        /// Ends it while nothing has left its place.
        var isCancelled: () -> Bool = { false }
        /// Gives up before the deadline where the store stays open, so that somebody else may have the group's lock.
        var yields = true
        /// Called once the store is at its new place, ready to be opened: what follows is only book-keeping.
        var published: () -> Void
    }

    struct Done {
        var method: Transfer.Method
        var bytes: Int64
        var notes: [String]
        var transformed: TransformedStore?
        var setAside: SetAsideStore?
        /// Where the store is kept as it was, where what is published lacks something of it.
        var archive: FilePath?
    }

    /// Why an attempt ended without the store having moved; everything is where it was.
    enum RetryReason: Error {
        /// Somebody has it open.
        case held(FileIdentity)
        /// It changed in the middle: look, and try again.
        case changed
        /// Somebody has taken it away, as another relocation would.
        case gone
    }

    /// The set is at its new place, and something that comes after failed: the next run does the rest.
    struct Unfinished: Error {
        let path: FilePath
        let reason: any Error
    }

    let container: GroupContainer
    var transfer: Transfer
    let places: TransferPaths
    let options: Options
    /// Whether what the plan rests on still holds, asked when the database is quiet.
    private let isStillWanted: () throws -> Bool
    /// Whether the store for whose sake this one goes still has its name, asked when this one has lost its own.
    let keepsOther: () throws -> Bool
    let report: (RelocationEvent) -> Void
    var staged: StagedSet?
    private(set) var supportBytes: Int64 = 0
    var storeUUID: String?
    var hasCommitted = false
    /// How long it took to make the copies.
    private var stagingTime = Duration.zero
    /// How long the group's lock is held for a store that somebody has open.
    private static let patience = Duration.seconds(1)

    /// Writes the journal: from here on, the transfer is either run or undone by the next run. Throws where nothing may be
    /// begun, and writes nothing then.
    init(
        _ transfer: Transfer, source: StoreLocation, container: GroupContainer, options: Options,
        isStillWanted: @escaping () throws -> Bool, keepsOther: @escaping () throws -> Bool = { true },
        report: @escaping (RelocationEvent) -> Void
    ) throws {
        try source.checkNothingIsMounted(andFolder: transfer.support != nil)
        self.container = container
        var transfer = transfer
        transfer.sourceDirectory = source.directory.identity
        transfer.databaseBirth = source.directory.birth(source.name.database)
        // Before the archive's directory is made: undoing takes it away again.
        try container.write(TransferJournal(transfer: transfer, state: .intended))
        self.places = try TransferPaths(transfer, source: source, container: container)
        transfer.destinationDirectory = places.destination?.directory.identity
        self.transfer = transfer
        self.options = options
        self.isStillWanted = isStillWanted
        self.keepsOther = keepsOther
        self.report = report
    }

    var source: StoreLocation { places.source }
    var end: TransferCompletion { TransferCompletion(container: container, transfer: transfer, places: places) }

    /// Transfers the set, waiting until the deadline for those who have it open. Throws `RetryReason` when that passed,
    /// and whatever else went wrong; the set is then at its old place again, unless undoing it failed too, and then
    /// the journal stays for the next run.
    func run() throws -> Done {
        do {
            try prepare()
            var wait = Duration.microseconds(50)
            var sightings = HolderObservations()
            var obstructed: ContinuousClock.Instant?
            while true {
                do {
                    return try attempt()
                } catch {
                    guard let setback = setback(error) else { throw error }
                    try checkCancelled()
                    let since = obstructed ?? .now
                    obstructed = since
                    // A copy that took long to make is not thrown away for a program that closes soon.
                    if options.yields, since.duration(to: .now) > max(Self.patience, stagingTime) { throw setback }
                    if try source.directory.status(source.name.database) == nil { throw RetryReason.gone }
                    if options.deadline.hasPassed { throw setback }
                    if case .held(let identity) = setback, wait > .milliseconds(10) {
                        let holders = FileHolder.of(identity)
                        if sightings.isNews(holders) { report(.waiting(for: holders)) }
                    }
                    pause(wait)
                    wait = min(wait * 2, .milliseconds(20))
                }
            }
        } catch {
            try undo(after: error)
            throw error
        }
    }

    private func setback(_ error: any Error) -> RetryReason? {
        if let setback = error as? RetryReason { return setback }
        guard TransientObstacle.caused(error) else { return nil }
        return (error as? SystemError)?.isOfALease == true ? .held(transfer.database) : .changed
    }

    private func checkCancelled() throws {
        if options.isCancelled() { throw RelocationFailure.cancelled(source.path) }
    }

    private func undo(after error: any Error) throws {
        let unfinished = Unfinished(path: (places.destination ?? source).path, reason: error)
        // Past the commit point nothing is undone: the next run finishes it.
        if hasCommitted { throw unfinished }
        guard let journal = try container.journal() else { return }
        if try end.hasArrived(journal.state) { throw unfinished }
        // Who has put another store in this one's place while it had its name knew what they did.
        let keepsCopies = journal.state != .intended
        for note in try end.undo(journal.state, keepsCopies: keepsCopies) { report(.note(note)) }
    }

    func writeJournal(_ state: TransferState) throws {
        try container.write(TransferJournal(transfer: transfer, state: state))
    }

    /// Puts the empty directory beside the store. It comes from the group container: when it can't be renamed
    /// across, neither can the store, and the set is copied.
    private func prepare() throws {
        let staging = try places.staging()
        let probe: FilePath.Component = "placeholder"
        // Writable, because only then may a user who isn't root rename it into another directory.
        try staging.makeDirectory(probe, mode: 0o700)
        do {
            try staging.rename(probe, to: places.hidden, in: source.directory, .refuse)
            try source.directory.directory(places.hidden).setPermissions(0o500)
        } catch {
            guard error.errno == .improperLink else { throw error }
            transfer.copies = places.destination != nil
            try writeJournal(.intended)
            try staging.removeDirectory(probe)
            try source.directory.makeDirectory(places.hidden, mode: 0o700)
        }
        if case .archive(let reason) = transfer.purpose {
            // Under the journal, so that undoing takes the note away again.
            try container.write(
                ArchiveNote(
                    id: transfer.id, name: source.name.database, from: source.path, at: Date(), reason: reason))
        }
        if let support = transfer.support, try source.directory.identity(source.name.support) == support {
            supportBytes = try source.directory.bytes(under: source.name.support)
        }
    }

    private func attempt() throws -> Done {
        // Before anything is written: a store that can't be read stays byte for byte what it is.
        if storeUUID == nil { storeUUID = try readUUID() }
        try quiesce()
        if storeUUID == nil { storeUUID = try readUUID() }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDWR)
        try descriptor.synchronize(path: source.path)
        let seen = try DatabaseFingerprint(descriptor, path: source.path)
        // Whoever may write to the directory may have put another file in its place.
        guard seen.identity == transfer.database else { throw RetryReason.changed }
        // Asked after the fingerprint was taken: a write in between makes the fingerprint another one.
        guard try isStillWanted() else { throw RetryReason.changed }
        // Whoever was writing it when that was decided may have been killed since.
        if case .publish = transfer.purpose, !options.opaque { try StoreSnapshot(source).checkWhole() }
        let began = ContinuousClock.now
        try stage(seen)
        stagingTime = max(stagingTime, began.duration(to: .now))
        try checkCancelled()
        let withdrawn = try withdraw(descriptor, seen)
        let done = try commit(descriptor, withdrawn)
        if (try? descriptor.status())?.links == 0, seen.size >= Self.largeFile { descriptor.closeElsewhere() }
        return done
    }

    /// Bytes of a file that is worth a process to let go of it.
    private static let largeFile: Int64 = 64 << 20
}

/// What was seen of those who have the set open, so that each change is told once.
struct HolderObservations {
    private var told: [FileHolder]?
    private var last: [FileHolder]?

    /// Nobody is told of only when seen twice: whoever lets go between the refusal and the look leaves nobody to be
    /// seen.
    mutating func isNews(_ holders: [FileHolder]) -> Bool {
        defer { last = holders }
        guard holders != told, !holders.isEmpty || last == holders else { return false }
        told = holders
        return true
    }
}
