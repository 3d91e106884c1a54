import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The parts of the steps before the commit: preparing, quiescing, staging, and withdrawing.
extension StoreTransfer {
    /// Moves the empty directory beside the store. It comes from the group container: if it can't be renamed across,
    /// neither can the store, and the set is copied.
    func prepare() throws {
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

    /// Throws unless the database is the one that the plan is about, and the plan still holds.
    func checkPlan(_ quiescent: DatabaseFingerprint) throws {
        // Anybody who may write to the directory may have replaced the file.
        guard quiescent.identity == transfer.database else { throw RetryReason.changed }
        // After the fingerprint: a write in between changes it.
        guard try isStillValid() else { throw RetryReason.changed }
        try followSupport()
        // A program that was writing the store at the decision may have been killed since.
        if case .publish = transfer.purpose, !options.opaque { try StoreSnapshot(source).checkWhole() }
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

    /// Moves all content into the database.
    func quiesce() throws {
        var snapshot = try StoreSnapshot(source)
        guard snapshot.status?.identity == transfer.database else { throw RetryReason.changed }
        guard snapshot.needsQuiescing, !options.opaque else { return }
        if !options.assumeClosed { try source.checkClosed(transfer.database) }
        // The last program to close it has often done so.
        snapshot = try StoreSnapshot(source)
        guard snapshot.needsQuiescing else { return }
        if !snapshot.journalIsHot, let log = try source.foreignLog() {
            logNotes.append(
                try ForeignLogArchive(container: container, store: source, assumeClosed: options.assumeClosed)
                    .setAside(log))
            return
        }
        try Quiescence.perform(source, for: transfer)
    }

    func readUUID() throws -> String? {
        guard !options.opaque else { return nil }
        do {
            return try StoreContents.storeUUID(StoreSnapshot(source))
        } catch StoreError.busy {
            throw RetryReason.held(transfer.database)
        }
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
        guard staging.isNeeded else { return try DatabaseFingerprint(descriptor, path: source.path) }
        guard let fingerprint = try DatabaseFingerprint.settled(descriptor, path: source.path) else {
            throw RetryReason.changed
        }
        return fingerprint
    }

    private var staging: Staging { Staging(transfer: transfer, paths: paths, options: options, report: report) }

    /// Makes the copies of the database with this fingerprint.
    func stage(_ descriptor: borrowing Descriptor, _ fingerprint: DatabaseFingerprint) throws {
        guard staging.isNeeded, staged?.fingerprint != fingerprint else { return }
        let start = ContinuousClock.now
        do {
            staged = try staging.run(fingerprint)
        } catch {
            staged = nil
            // A copy that was made while a program wrote the store may be torn: its content proves nothing.
            guard try error is SystemError || isUnwritten(descriptor, since: fingerprint) else {
                throw RetryReason.changed
            }
            throw error
        }
        stagingTime = max(stagingTime, start.duration(to: .now))
    }

    private func isUnwritten(_ descriptor: borrowing Descriptor, since fingerprint: DatabaseFingerprint) throws -> Bool
    {
        try DatabaseFingerprint(descriptor, path: source.path) == fingerprint
            && (options.opaque || !StoreSnapshot(source).needsQuiescing)
    }

    /// Returns true if the database is as it was at the decision. Only a copy, or a reason based on the content,
    /// requires unchanged content; else the same file suffices.
    func isUnchanged(_ raw: CInt, since expected: DatabaseFingerprint) throws -> Bool {
        let now = try DatabaseFingerprint(raw, path: source.path)
        if case .publish = transfer.purpose, staged == nil { return now.identity == expected.identity }
        return now == expected
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
    func moveSideFilesAway() throws {
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
        let time = ModificationTime(raw)
        let count = try retrying("pwrite", path: source.path) { pwrite(raw, version, 2, 18) }
        guard count == 2 else { throw SystemError("pwrite", .ioError, path: source.path) }
        // Without a lease, another program may have written, too.
        if !options.assumeClosed { time?.restore(raw) }
        try retrying("fsync", path: source.path) { fsync(raw) }
    }
}

extension StoreLocation {
    /// Throws `RetryReason.held` unless the database, which is this file, is closed at this moment.
    func checkClosed(_ database: FileIdentity) throws {
        let descriptor = try directory.open(name.database, flags: O_RDONLY)
        guard let lease = try StoreTransfer.lease(descriptor) else {
            throw StoreTransfer.RetryReason.held(database)
        }
        _ = consume lease
        try checkSideFilesAreUnwritten()
    }

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
