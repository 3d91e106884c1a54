import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The steps before the commit: quiescing, staging, and withdrawing the database from its old name.
extension StoreTransfer {
    /// Moves all content into the database.
    func quiesce() throws {
        var snapshot = try StoreSnapshot(source)
        guard snapshot.status?.identity == transfer.database else { throw RetryReason.changed }
        guard snapshot.needsQuiescing, !options.opaque else { return }
        try checkClosed()
        // The last program to close it has often done so.
        snapshot = try StoreSnapshot(source)
        guard snapshot.needsQuiescing else { return }
        if !snapshot.journalIsHot, let log = try source.foreignLog() {
            logNotes.append(
                try ForeignLogArchive(container: container, store: source, assumeClosed: options.assumeClosed)
                    .setAside(log))
            return
        }
        do {
            try Quiescence.perform(source, transfer.id)
        } catch is Quiescence.CheckpointBusy {
            throw RetryReason.held(transfer.database)
        }
    }

    func readUUID() throws -> String? {
        guard !options.opaque else { return nil }
        do {
            return try StoreContents.storeUUID(StoreSnapshot(source))
        } catch StoreError.busy {
            throw RetryReason.held(transfer.database)
        }
    }

    /// Throws `RetryReason.held` unless the database is closed at this moment.
    private func checkClosed() throws {
        guard !options.assumeClosed else { return }
        let descriptor = try source.directory.open(source.name.database, flags: O_RDONLY)
        guard let lease = try Self.lease(descriptor) else { throw RetryReason.held(transfer.database) }
        _ = consume lease
        try source.checkSideFilesAreUnwritten()
    }

    /// Acquires a lease, or returns nil if it is refused for 10 ms. A lease can be refused for an instant after the
    /// last close, and programs that open and close in turn leave gaps of a millisecond.
    static func lease(
        _ descriptor: borrowing Descriptor, _ kind: FileLease.Kind = .write
    ) throws(SystemError) -> FileLease? {
        for _ in 0..<100 {
            if let lease = try FileLease(descriptor, kind) { return lease }
            pause(.microseconds(50))
        }
        return nil
    }

    /// Returns the fingerprint of the database. If it is about to be copied, any later write changes the fingerprint.
    func fingerprint(_ descriptor: borrowing Descriptor) throws -> DatabaseFingerprint {
        guard isCopied else { return try DatabaseFingerprint(descriptor, path: source.path) }
        guard let fingerprint = try DatabaseFingerprint.settled(descriptor, path: source.path) else {
            throw RetryReason.changed
        }
        return fingerprint
    }

    /// Makes the copies of the database with this fingerprint.
    func stage(_ descriptor: borrowing Descriptor, _ fingerprint: DatabaseFingerprint) throws {
        guard isCopied else { return }
        if let staged, staged.fingerprint == fingerprint { return }
        do {
            staged = try StagedSet(
                of: source, fingerprint: fingerprint, transfer: transfer, paths: paths, container: container,
                copies: publishesCopy, archives: keepsArchive, opaque: options.opaque, content: options.content,
                isCancelled: options.retries.isCancelled, report: report)
            guard publishesCopy, let destination = paths.destination else { return }
            try options.verify(StoreLocation(directory: paths.staging(), name: destination.name))
        } catch {
            staged = nil
            // A copy that was made while a program wrote the store may be torn: its content proves nothing.
            guard try error is SystemError || isUnwritten(descriptor, since: fingerprint) else {
                throw RetryReason.changed
            }
            throw error
        }
    }

    private func isUnwritten(_ descriptor: borrowing Descriptor, since fingerprint: DatabaseFingerprint) throws -> Bool
    {
        try DatabaseFingerprint(descriptor, path: source.path) == fingerprint
            && (options.opaque || !StoreSnapshot(source).needsQuiescing)
    }

    private var isCopied: Bool { publishesCopy || keepsArchive }
    private var publishesCopy: Bool { transfer.copies && paths.destination != nil }

    private var keepsArchive: Bool {
        guard case .publish = transfer.purpose else { return false }
        return transfer.retirement == .archive || options.content.archiveReason != nil
    }

    /// The state of the database once its old name is withdrawn and it is proved closed.
    struct Withdrawn {
        let fingerprint: DatabaseFingerprint
        let support: FileIdentity?
    }

    func withdraw(_ descriptor: borrowing Descriptor, expecting expected: DatabaseFingerprint) throws -> Withdrawn {
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
        options.gracePeriod.wait()
        return Withdrawn(
            fingerprint: fingerprint, support: try source.directory.identity(source.name.support))
    }

    /// Returns true if the database is as it was at the decision. Only a copy, or a reason based on the content,
    /// requires unchanged content; else the same file suffices.
    private func isUnchanged(_ raw: CInt, since expected: DatabaseFingerprint) throws -> Bool {
        let now = try DatabaseFingerprint(raw, path: source.path)
        if case .publish = transfer.purpose, staged == nil { return now.identity == expected.identity }
        return now == expected
    }

    /// Swaps the names back and restores the header. No process has the database open yet.
    func revertWithdrawal(_ raw: CInt, isClosed: Bool) throws {
        if try source.directory.identity(paths.hidden) == transfer.database { try swapNames() }
        if isClosed, transfer.hadWAL { try setFormatVersion(raw, writeAhead: true) }
        try writeJournal(.intended)
    }

    func swapNames() throws(SystemError) {
        try source.directory.rename(source.name.database, to: paths.hidden, in: source.directory, .exchange)
    }

    /// Runs `body` under a write lease. `isIntact` returns false as soon as a process waits to open the file.
    func withLease<Result>(
        _ descriptor: borrowing Descriptor, _ body: (_ isIntact: () -> Bool) throws -> Result
    ) throws -> Result {
        if options.assumeClosed { return try body { true } }
        guard let lease = try Self.lease(descriptor) else { throw RetryReason.held(transfer.database) }
        let raw = descriptor.raw
        return try withExtendedLifetime(lease) { _ in try body { FileLease.isIntact(raw) } }
    }

    /// Moves an empty log, a cold journal and the wal-index aside and removes them: under the lease, no process uses
    /// them. A file that turns out to have content came late, and is put back.
    private func moveSideFilesAway() throws {
        let directory = source.directory
        if !options.assumeClosed { try source.checkSideFilesAreUnwritten() }
        for (suffix, name) in SideFile.movedAside(for: source.name) {
            guard let found = try directory.status(name) else { continue }
            guard found.kind == .regular else { throw UnsupportedFile(path: directory.path.appending(name)) }
            let aside = transfer.id.hiddenName(suffix)
            do throws(SystemError) {
                try directory.rename(name, to: aside, in: directory, .refuse)
            } catch {
                // A late file of an earlier attempt is kept there.
                guard error.errno == .fileExists else { throw error }
                throw RetryReason.changed
            }
            let size = try directory.status(aside)?.size ?? 0
            let isHot = suffix == "-journal" && size > 0 ? try RollbackJournal.isHot(aside, in: directory) : false
            if isHot || (suffix == "-wal" && size > 0) {
                _ = try completion.returnSideFiles()
                throw RetryReason.changed
            }
            try directory.removeFile(aside)
        }
    }

    /// Sets the two bytes of the header that say whether SQLite uses a write-ahead log
    /// (https://sqlite.org/fileformat2.html, §1.3.3). In rollback mode, no program can commit to a log that has lost
    /// its database.
    ///
    /// Called only under the lease, when no connection has these bytes in memory.
    func setFormatVersion(_ raw: CInt, writeAhead: Bool) throws(SystemError) {
        guard transfer.hadWAL || writeAhead, !options.opaque else { return }
        let version: [UInt8] = writeAhead ? [2, 2] : [1, 1]
        let count = try retrying("pwrite", path: source.path) { pwrite(raw, version, 2, 18) }
        guard count == 2 else { throw SystemError("pwrite", .ioError, path: source.path) }
        try retrying("fsync", path: source.path) { fsync(raw) }
    }
}

extension StoreLocation {
    /// Throws `RetryReason.held` if a program has the log or the journal open for writing. SQLite has the database open
    /// too, a copy that is under way has not: what it writes after the file was removed would be lost.
    func checkSideFilesAreUnwritten() throws {
        for name in [name.wal, name.journal] {
            guard let status = try directory.status(name), status.kind == .regular,
                let descriptor = try? directory.open(name, flags: O_RDONLY)
            else { continue }
            if Self.isWritten(descriptor) { throw StoreTransfer.RetryReason.held(status.identity) }
        }
    }

    /// Returns false if that can't be known either, on a file system without leases.
    private static func isWritten(_ descriptor: borrowing Descriptor) -> Bool {
        do {
            guard let lease = try StoreTransfer.lease(descriptor, .read) else { return true }
            _ = consume lease
        } catch {}
        return false
    }
}
