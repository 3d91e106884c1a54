import FoundationEssentials
import Glibc
import GroupContainer
import LinuxSystem
import PersistentStore
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
        var drain: Drain
        var assumeClosed: Bool
        /// Not a database as far as anybody can see: SQLite isn't asked.
        var opaque: Bool
        /// What is published, for a transfer that copies.
        var content = PublishedContent.same
        /// Called once the store is at its new place, ready to be opened: what follows is only book-keeping.
        var published: () -> Void
    }

    struct Done {
        var method: Transfer.Method
        var bytes: Int64
        var notes: [String]
        var transformed: TransformedStore?
        var setAside: SetAsideStore?
    }

    /// Why an attempt ended without the store having moved; everything is where it was.
    enum Setback: Error {
        /// Somebody has it open.
        case held(FileIdentity)
        /// It changed in the middle: look, and try again.
        case changed
    }

    /// The set is at its new place, and something that comes after failed: the next run does the rest.
    struct Unfinished: Error {
        let path: FilePath
        let reason: any Error
    }

    private let container: GroupContainer
    private var transfer: Transfer
    private let places: TransferPlaces
    private let options: Options
    /// Whether what the plan rests on still holds, asked when the database is quiet.
    private let isStillWanted: () throws -> Bool
    private let report: (RelocationEvent) -> Void
    private var staged: StagedSet?
    private var supportBytes: Int64 = 0
    private var storeUUID: String?
    private var hasCommitted = false

    /// Writes the journal: from here on, the transfer is either run or undone by the next run.
    init(
        _ transfer: Transfer, source: StoreLocation, container: GroupContainer, options: Options,
        isStillWanted: @escaping () throws -> Bool, report: @escaping (RelocationEvent) -> Void
    ) throws {
        self.container = container
        self.transfer = transfer
        // Before the archive's directory is made: undoing takes it away again.
        try container.write(TransferJournal(transfer: transfer, state: .intended))
        self.places = try TransferPlaces(transfer, source: source, container: container)
        self.options = options
        self.isStillWanted = isStillWanted
        self.report = report
    }

    private var source: StoreLocation { places.source }
    private var end: TransferEnd { TransferEnd(container: container, transfer: transfer, places: places) }

    /// Transfers the set, waiting until the deadline for those who have it open. Throws `Setback` when that passed,
    /// and whatever else went wrong; the set is then at its old place again, unless undoing it failed too, and then
    /// the journal stays for the next run.
    func run() throws -> Done {
        do {
            try prepare()
            var wait = Duration.microseconds(50)
            while true {
                do {
                    return try attempt()
                } catch let setback as Setback {
                    if options.deadline.hasPassed { throw setback }
                    if case .held(let identity) = setback, wait > .milliseconds(10) {
                        report(.waiting(for: FileHolder.of(identity)))
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

    private func undo(after error: any Error) throws {
        let unfinished = Unfinished(path: (places.destination ?? source).path, reason: error)
        // Past the commit point nothing is undone: the next run finishes it.
        if hasCommitted { throw unfinished }
        guard let journal = try container.journal() else { return }
        if try end.hasArrived(journal.state) { throw unfinished }
        for note in try end.undo(journal.state) { report(.note(note)) }
    }

    private func writeJournal(_ state: TransferState) throws {
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

    // MARK: One attempt

    private func attempt() throws -> Done {
        // Before anything is written: a store that can't be read stays byte for byte what it is.
        if storeUUID == nil { storeUUID = try readUUID() }
        try quiesce()
        if storeUUID == nil { storeUUID = try readUUID() }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDWR)
        try descriptor.synchronize(path: source.path)
        let seen = try DatabaseFingerprint(descriptor, path: source.path)
        // Whoever may write to the directory may have put another file in its place.
        guard seen.identity == transfer.database else { throw Setback.changed }
        // Asked after the fingerprint was taken: a write in between makes the fingerprint another one.
        guard try isStillWanted() else { throw Setback.changed }
        try stage(seen)
        let withdrawn = try withdraw(descriptor, seen)
        return try commit(descriptor, withdrawn)
    }

    /// Brings everything into the database.
    private func quiesce() throws {
        var seen = try StoreSighting(source)
        guard seen.status?.identity == transfer.database else { throw Setback.changed }
        guard seen.needsQuiescing, !options.opaque else { return }
        try proveClosed()
        // Whoever closed it last has often done it.
        seen = try StoreSighting(source)
        guard seen.needsQuiescing else { return }
        do {
            try Quiescence.perform(source, transfer.id)
        } catch is Quiescence.CheckpointBusy {
            throw Setback.held(transfer.database)
        }
    }

    private func readUUID() throws -> String? {
        do {
            return try StoreContents.storeUUID(StoreSighting(source))
        } catch StoreError.busy {
            throw Setback.held(transfer.database)
        }
    }

    /// Throws `Setback.held` unless nobody has the database open at this moment.
    private func proveClosed() throws {
        guard !options.assumeClosed else { return }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDONLY)
        guard let lease = try Self.lease(descriptor) else { throw Setback.held(transfer.database) }
        _ = consume lease
    }

    /// A lease can be refused for an instant after the last close, and programs that open and close in turn leave
    /// gaps of a millisecond: a refusal is believed only after 10 ms.
    private static func lease(_ descriptor: borrowing Descriptor) throws(SystemError) -> FileLease? {
        for _ in 0..<100 {
            if let lease = try FileLease(descriptor) { return lease }
            pause(.microseconds(50))
        }
        return nil
    }

    private func stage(_ fingerprint: DatabaseFingerprint) throws {
        let needsCopy = transfer.copies && places.destination != nil
        guard needsCopy || keepsArchive else { return }
        if let staged, staged.fingerprint == fingerprint { return }
        staged = try StagedSet(
            of: source, fingerprint: fingerprint, transfer: transfer, places: places, container: container,
            copies: needsCopy, archives: keepsArchive, opaque: options.opaque, content: options.content,
            report: report)
    }

    private var keepsArchive: Bool {
        guard case .publish = transfer.purpose else { return false }
        return transfer.retirement == .archive || options.content.reason != nil
    }

    /// What the database is once its old name is withdrawn and it is proved closed.
    private struct Withdrawn {
        let fingerprint: DatabaseFingerprint
        let support: FileIdentity?
    }

    private func withdraw(_ descriptor: borrowing Descriptor, _ seen: DatabaseFingerprint) throws -> Withdrawn {
        let raw = descriptor.raw
        let fingerprint = try withLease(descriptor) { isIntact in
            guard try isAsDecided(raw, seen) else { throw Setback.changed }
            try moveSideFilesAway()
            try setVersion(raw, writeAhead: false)
            do {
                let fingerprint = try DatabaseFingerprint(raw, path: source.path)
                try writeJournal(.withdrawn)
                try exchange()
                guard try source.directory.identity(places.hidden) == transfer.database else {
                    // What was swapped is not what was proved closed: it goes back where it came from.
                    try exchange()
                    throw Setback.changed
                }
                guard isIntact() else { throw Setback.changed }
                return fingerprint
            } catch {
                try takeBack(raw, isClosed: isIntact())
                throw error
            }
        }
        try source.directory.synchronize()
        options.drain.perform()
        return Withdrawn(
            fingerprint: fingerprint, support: try source.directory.identity(source.name.support))
    }

    /// Nothing but a copy, or a reason that lies in the content, depends on the content being what it was.
    private func isAsDecided(_ raw: CInt, _ seen: DatabaseFingerprint) throws -> Bool {
        let now = try DatabaseFingerprint(raw, path: source.path)
        if case .publish = transfer.purpose, staged == nil { return now.identity == seen.identity }
        return now == seen
    }

    /// The names swapped back and the header as it was, since nobody has the database open yet.
    private func takeBack(_ raw: CInt, isClosed: Bool) throws {
        if try source.directory.identity(places.hidden) == transfer.database { try exchange() }
        if isClosed, transfer.hadWAL { try setVersion(raw, writeAhead: true) }
        try writeJournal(.intended)
    }

    private func exchange() throws(SystemError) {
        try source.directory.rename(source.name.database, to: places.hidden, in: source.directory, .exchange)
    }

    /// Runs `body` under a write lease. `isIntact` turns false when somebody waits to open the file.
    private func withLease<Result>(
        _ descriptor: borrowing Descriptor, _ body: (_ isIntact: () -> Bool) throws -> Result
    ) throws -> Result {
        if options.assumeClosed { return try body { true } }
        guard let lease = try Self.lease(descriptor) else { throw Setback.held(transfer.database) }
        let raw = descriptor.raw
        return try withExtendedLifetime(lease) { _ in try body { FileLease.isIntact(raw) } }
    }

    /// Under the lease nobody uses them: an empty log, a cold journal, the wal-index. One that has content after all
    /// came late, and stays.
    private func moveSideFilesAway() throws {
        let directory = source.directory
        for (suffix, name) in SideFile.kept(source.name) {
            guard let found = try directory.status(name) else { continue }
            guard found.kind == .regular else { throw UnusualFile(path: directory.path.appending(name)) }
            let aside = transfer.id.hiddenName(suffix)
            try directory.rename(name, to: aside, in: directory, .replace)
            let size = try directory.status(aside)?.size ?? 0
            let isHot = suffix == "-journal" && size > 0 ? try RollbackJournal.isHot(aside, in: directory) : false
            if isHot || (suffix == "-wal" && size > 0) {
                _ = try end.returnSideFiles()
                throw Setback.changed
            }
            try directory.removeFile(aside)
        }
    }

    /// The two bytes of the header that say whether SQLite uses a write-ahead log
    /// (https://sqlite.org/fileformat2.html, §1.3.3). Without one, nobody can lose a commit in a log that has lost
    /// its database. Written under the lease only: no connection has them in memory.
    private func setVersion(_ raw: CInt, writeAhead: Bool) throws(SystemError) {
        guard transfer.hadWAL || writeAhead, !options.opaque else { return }
        let version: [UInt8] = writeAhead ? [2, 2] : [1, 1]
        let count = try retrying("pwrite", path: source.path) { pwrite(raw, version, 2, 18) }
        guard count == 2 else { throw SystemError("pwrite", .ioError, path: source.path) }
        try retrying("fsync", path: source.path) { fsync(raw) }
    }

    // MARK: Commit

    private func commit(_ descriptor: borrowing Descriptor, _ withdrawn: Withdrawn) throws -> Done {
        let receipt = self.receipt(withdrawn)
        let raw = descriptor.raw
        do {
            try withLease(descriptor) { isIntact in
                guard try DatabaseFingerprint(raw, path: source.path) == withdrawn.fingerprint,
                    try source.directory.status(source.name.wal) == nil,
                    try source.directory.status(source.name.journal) == nil,
                    try source.directory.identity(places.hidden) == transfer.database, isIntact()
                else { throw Setback.changed }
                try decide(withdrawn, receipt)
                // Nobody has it open yet. Where this fails, `finish` tries.
                if end.arrivesInWAL, !transfer.copies { try? setVersion(raw, writeAhead: true) }
            }
        } catch let setback as Setback {
            // Somebody had looked the old name up before it was withdrawn, and uses the database: it has it again.
            try takeBack(raw, isClosed: false)
            throw setback
        }
        hasCommitted = true
        report(.published)
        if case .publish = transfer.purpose {
            if transfer.copies, end.arrivesInWAL, let destination = places.destination {
                _ = try? JournalMode.writeAhead(at: destination)
            }
            options.published()
        }
        let notes = try end.finish(receipt: receipt)
        return Done(
            method: method, bytes: receipt?.bytes ?? withdrawn.fingerprint.size,
            notes: (staged?.transformed?.notes ?? []) + notes, transformed: staged?.transformed, setAside: setAside)
    }

    private func decide(_ withdrawn: Withdrawn, _ receipt: RelocationReceipt?) throws {
        let database = staged?.copy?.database ?? transfer.database
        let support = staged?.copy != nil ? staged?.copy?.support : withdrawn.support
        try writeJournal(.committing(database: database, support: support, receipt: receipt))
        try arrive()
    }

    private var setAside: SetAsideStore? {
        options.content.reason.map {
            SetAsideStore(store: source.path, archive: container.archivePath(transfer.id), reason: $0)
        }
    }

    private var method: Transfer.Method { staged?.copy?.method ?? .rename }

    /// The set gets its new names, the database last: its arrival is the commit point.
    private func arrive() throws {
        guard let destination = places.destination else {
            try source.directory.removeFile(places.hidden)
            return try source.directory.synchronize()
        }
        let origin = transfer.copies ? try places.staging() : source.directory
        let supportName = transfer.copies ? destination.name.support : source.name.support
        let databaseName = transfer.copies ? destination.name.database : places.hidden
        try moveOldSupportAside(of: destination)
        if try origin.status(supportName) != nil {
            try origin.rename(supportName, to: destination.name.support, in: destination.directory, .refuse)
            try destination.directory.synchronize()
        }
        try origin.rename(
            databaseName, to: destination.name.database, in: destination.directory,
            replacesLink(destination) || places.isInPlace ? .exchange : .refuse)
        try destination.directory.synchronize()
        try origin.synchronize()
    }

    /// Where the set gets its own name again with other content, its external data makes room first, into what is staged:
    /// undoing gives it back, finishing removes it with the rest.
    private func moveOldSupportAside(of destination: StoreLocation) throws {
        guard places.isInPlace, let support = transfer.support,
            try destination.directory.identity(destination.name.support) == support
        else { return }
        let staging = try places.staging()
        try destination.directory.rename(
            destination.name.support, to: TransferEnd.oldSupportName(transfer.id), in: staging, .refuse)
        try staging.synchronize()
        try destination.directory.synchronize()
    }

    /// Where a store is restored to, the link that its relocation left may stand; it gives way in the same step.
    private func replacesLink(_ destination: StoreLocation) throws -> Bool {
        guard case .restore = transfer.purpose else { return false }
        return try destination.directory.status(destination.name.database)?.kind == .symbolicLink
    }

    private func receipt(_ withdrawn: Withdrawn) -> RelocationReceipt? {
        // A store that stays at its place came from nowhere.
        guard case .publish = transfer.purpose, let destination = places.destination, !places.isInPlace else {
            return nil
        }
        var receipt = RelocationReceipt(
            id: transfer.id, name: destination.name.database, from: source.path, at: Date(), method: method,
            bytes: withdrawn.fingerprint.size + supportBytes, hash: staged?.copy?.hash,
            changeCounter: withdrawn.fingerprint.changeCounter ?? 0,
            storeUUID: options.content.reason == nil ? storeUUID : nil,
            retirement: transfer.retirement, assumedClosed: options.assumeClosed)
        if transfer.arrivesInWAL != nil { receipt.hadWAL = transfer.hadWAL }
        receipt.modelBefore = staged?.transformed?.before
        receipt.modelAfter = staged?.transformed?.after
        return receipt
    }
}
