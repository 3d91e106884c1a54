import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Quiescing, staging, and withdrawing the database from its old name.
extension StoreTransfer {
    /// Brings everything into the database.
    func quiesce() throws {
        var seen = try StoreSnapshot(source)
        guard seen.status?.identity == transfer.database else { throw RetryReason.changed }
        guard seen.needsQuiescing, !options.opaque else { return }
        try proveClosed()
        // Whoever closed it last has often done it.
        seen = try StoreSnapshot(source)
        guard seen.needsQuiescing else { return }
        do {
            try Quiescence.perform(source, transfer.id)
        } catch is Quiescence.CheckpointBusy {
            throw RetryReason.held(transfer.database)
        }
    }

    func readUUID() throws -> String? {
        do {
            return try StoreContents.storeUUID(StoreSnapshot(source))
        } catch StoreError.busy {
            throw RetryReason.held(transfer.database)
        }
    }

    /// Throws `RetryReason.held` unless nobody has the database open at this moment.
    private func proveClosed() throws {
        guard !options.assumeClosed else { return }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDONLY)
        guard let lease = try Self.lease(descriptor) else { throw RetryReason.held(transfer.database) }
        _ = consume lease
    }

    /// A lease can be refused for an instant after the last close, and programs that open and close in turn leave
    /// gaps of a millisecond: a refusal is believed only after 10 ms.
    static func lease(_ descriptor: borrowing Descriptor) throws(SystemError) -> FileLease? {
        for _ in 0..<100 {
            if let lease = try FileLease(descriptor) { return lease }
            pause(.microseconds(50))
        }
        return nil
    }

    func stage(_ fingerprint: DatabaseFingerprint) throws {
        let needsCopy = transfer.copies && places.destination != nil
        guard needsCopy || keepsArchive else { return }
        if let staged, staged.fingerprint == fingerprint { return }
        staged = try StagedSet(
            of: source, fingerprint: fingerprint, transfer: transfer, places: places, container: container,
            copies: needsCopy, archives: keepsArchive, opaque: options.opaque, content: options.content,
            losses: options.losses, isCancelled: options.isCancelled, report: report)
    }

    private var keepsArchive: Bool {
        guard case .publish = transfer.purpose else { return false }
        return transfer.retirement == .archive || options.content.reason != nil || !options.losses.isEmpty
    }

    /// What the database is once its old name is withdrawn and it is proved closed.
    struct Withdrawn {
        let fingerprint: DatabaseFingerprint
        let support: FileIdentity?
    }

    func withdraw(_ descriptor: borrowing Descriptor, _ seen: DatabaseFingerprint) throws -> Withdrawn {
        let raw = descriptor.raw
        let fingerprint = try withLease(descriptor) { isIntact in
            guard try isAsDecided(raw, seen) else { throw RetryReason.changed }
            try moveSideFilesAway()
            try setVersion(raw, writeAhead: false)
            do {
                let fingerprint = try DatabaseFingerprint(raw, path: source.path)
                transfer.closedSupport = try closedSupport
                try writeJournal(.withdrawn)
                try exchange()
                guard try source.directory.identity(places.hidden) == transfer.database else {
                    // What was swapped is not what was proved closed: it goes back where it came from.
                    try exchange()
                    throw RetryReason.changed
                }
                guard isIntact(), try keepsOther() else { throw RetryReason.changed }
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
    func takeBack(_ raw: CInt, isClosed: Bool) throws {
        if try source.directory.identity(places.hidden) == transfer.database { try exchange() }
        if isClosed, transfer.hadWAL { try setVersion(raw, writeAhead: true) }
        try writeJournal(.intended)
    }

    func exchange() throws(SystemError) {
        try source.directory.rename(source.name.database, to: places.hidden, in: source.directory, .exchange)
    }

    /// Runs `body` under a write lease. `isIntact` turns false when somebody waits to open the file.
    func withLease<Result>(
        _ descriptor: borrowing Descriptor, _ body: (_ isIntact: () -> Bool) throws -> Result
    ) throws -> Result {
        if options.assumeClosed { return try body { true } }
        guard let lease = try Self.lease(descriptor) else { throw RetryReason.held(transfer.database) }
        let raw = descriptor.raw
        return try withExtendedLifetime(lease) { _ in try body { FileLease.isIntact(raw) } }
    }

    /// Under the lease nobody uses them: an empty log, a cold journal, the wal-index. One that has content after all
    /// came late, and stays.
    private func moveSideFilesAway() throws {
        let directory = source.directory
        for (suffix, name) in SideFile.kept(source.name) {
            guard let found = try directory.status(name) else { continue }
            guard found.kind == .regular else { throw UnsupportedFile(path: directory.path.appending(name)) }
            let aside = transfer.id.hiddenName(suffix)
            try directory.rename(name, to: aside, in: directory, .replace)
            let size = try directory.status(aside)?.size ?? 0
            let isHot = suffix == "-journal" && size > 0 ? try RollbackJournal.isHot(aside, in: directory) : false
            if isHot || (suffix == "-wal" && size > 0) {
                _ = try end.returnSideFiles()
                throw RetryReason.changed
            }
            try directory.removeFile(aside)
        }
    }

    /// The two bytes of the header that say whether SQLite uses a write-ahead log
    /// (https://sqlite.org/fileformat2.html, §1.3.3). Without one, nobody can lose a commit in a log that has lost
    /// its database. Written under the lease only: no connection has them in memory.
    func setVersion(_ raw: CInt, writeAhead: Bool) throws(SystemError) {
        guard transfer.hadWAL || writeAhead, !options.opaque else { return }
        let version: [UInt8] = writeAhead ? [2, 2] : [1, 1]
        let count = try retrying("pwrite", path: source.path) { pwrite(raw, version, 2, 18) }
        guard count == 2 else { throw SystemError("pwrite", .ioError, path: source.path) }
        try retrying("fsync", path: source.path) { fsync(raw) }
    }
}
