import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A store that may hold the content of an archived one.
struct ArchiveCounterpart {
    /// What the store must hold to vouch for the archived one.
    enum Basis {
        /// The same content.
        case equal
        /// The same content, or at least every row and every external file. It has to be intact.
        case superset
        /// It was made from the archived store, to which nobody has written since: it may have gone on and lost rows.
        /// It has to be intact, and has rows wherever the archived one has.
        case descendant
    }

    struct Place {
        let path: FilePath
        let basis: Basis
    }

    enum Finding {
        case elsewhere(ArchiveAssessment)
        /// No store is there.
        case absent
        /// A phrase on why the store there is no proof.
        case contradicted(String)
    }

    let place: Place
    let archived: StoreLocation
    /// The files of the group's archive, which prove nothing under whatever name.
    let excluded: Set<FileIdentity>
    var isCancelled: () -> Bool = { false }
    /// The folder of the archived store's external data; nil to compare none.
    var support: FilePath.Component?
    /// True only to compare: the store may be in an archive, in use, or in need of recovery.
    var comparesOnly = false

    /// Compares the two stores. If the content is there, calls `body` while that stays true, with a function that
    /// checks that the store still has its name.
    func compare(whileProven body: (_ isProven: () throws -> Bool) throws -> Void) throws -> Finding {
        guard let found = try? RelocationEndpoints.unresolved(place.path),
            let status = try found.directory.status(found.name.database)
        else { return .absent }
        guard comparesOnly || !GroupContainer.isBookkeeping(found.directory.path), !excluded.contains(status.identity)
        else {
            return .contradicted("is in the archive itself")
        }
        guard status.kind == .regular else { return .contradicted("is no file") }
        let (mine, theirs) = (try StoreSnapshot(archived), try StoreSnapshot(found))
        if mine.header != nil, theirs.header != nil {
            guard comparesOnly || !theirs.journalIsHot else { return .contradicted("has an interrupted transaction") }
            do {
                return try compareContent(found, whileProven: body)
            } catch StoreError.busy(_, _, let message) {
                throw ArchiveRemoval.InUse(reason: "\(PrintablePath(place.path)) is in use: \(message)")
            } catch let error as StoreError {
                if isCancelled() { throw RelocationFailure.cancelled(archived.path) }
                // What SQLite can't read may still be equal byte by byte.
                let finding = try compareBytes(theirs, whileProven: body)
                guard case .contradicted = finding else { return finding }
                return .contradicted("can't be compared: \(error.message)")
            }
        }
        guard status.size > 0 else { return .contradicted("is empty") }
        return try compareBytes(theirs, whileProven: body)
    }

    private func compareExternalData(_ found: StoreLocation) throws -> ExternalDataComparison {
        guard let support else { return ExternalDataComparison(excluded: []) }
        return try archived.directory.compareExternalData(support, with: found, excluding: excluded)
    }

    private static let inUse = "can't be kept from being written to meanwhile"

    // MARK: Through SQLite

    private func compareContent(
        _ found: StoreLocation, whileProven body: (_ isProven: () throws -> Bool) throws -> Void
    ) throws -> Finding {
        // SQLite's reading may be repeated, the removal not.
        var result: Finding?
        return try StoreReader.read(found) { reader in
            if let result { return result }
            reader.interrupt(when: isCancelled)
            // A store that nobody has open is read without SQLite's locks. A lease keeps writers away meanwhile.
            let isLocked = reader.takesLocks || comparesOnly
            let held = isLocked ? nil : HeldCounterpart(found)
            guard isLocked || held != nil else { return .contradicted(Self.inUse) }
            let before = try StoreSnapshot(found)
            let (finding, isElsewhere) = try compareContent(reader, found)
            guard isElsewhere else { return finding }
            try body {
                let now = try StoreSnapshot(found)
                return now.status?.identity == before.status?.identity && now.wal?.identity == before.wal?.identity
                    && (held.map { $0.isIntact && now.status == before.status } ?? true)
            }
            result = finding
            return finding
        }
    }

    private func compareContent(
        _ reader: StoreReader, _ found: StoreLocation
    ) throws -> (finding: Finding, isElsewhere: Bool) {
        let theirs = try StoreContent(reader)
        return try StoreReader.read(archived) { archivedReader in
            archivedReader.interrupt(when: isCancelled)
            let mine = try StoreContent(archivedReader)
            let files = try compareExternalData(found)
            let findings = try reader.integrityFindings()
            if files.isComplete, try mine.difference(from: theirs) == nil {
                // A collation that only the app knows makes both look damaged in the same way.
                if try findings.isEmpty || findings == archivedReader.integrityFindings() {
                    return (.elsewhere(assessment("\(PrintablePath(found.path)) holds its content")), true)
                }
            }
            guard findings.isEmpty else { return (.contradicted("is damaged: \(findings[0])"), false) }
            guard place.basis != .equal else { return (.contradicted("has other content"), false) }
            let rows = try mine.retention(in: theirs)
            if let reason = try obstacle(rows, files, theirs, header: reader.header) {
                return (.contradicted(reason), false)
            }
            var assessment = assessment("\(PrintablePath(found.path)) is the same store, and has gone on since")
            assessment.fewer = rows.incomplete
            assessment.fewerFiles = files.missing.count
            return (.elsewhere(assessment), true)
        }
    }

    /// Returns a phrase on why a store that has gone on doesn't vouch for the archived one; nil if it does.
    private func obstacle(
        _ rows: ContentRetention, _ files: ExternalDataComparison, _ theirs: StoreContent, header: DatabaseHeader?
    ) throws -> String? {
        if let different = files.different {
            return "has a different \(PrintablePath(different.lastComponent ?? ".."))"
        }
        if place.basis == .superset, !rows.isComplete || !files.isComplete {
            return "lacks some of its content, and it can't be told whether the archive was written to"
        }
        if let contradiction = rows.contradiction ?? contradiction(of: header) { return contradiction }
        guard !files.missing.isEmpty else { return nil }
        guard files.missing.count < files.files, try theirs.isCoreData else {
            return "lacks \(files.missing.count) of \(files.files) external files"
        }
        let referenced = try theirs.references(to: Set(files.missing.map(\.bytes)))
        return referenced.isEmpty ? nil : "lacks \(referenced.count) external files to which it still refers"
    }

    /// Every commit in rollback mode, and in WAL mode some, increment the change counter
    /// (https://sqlite.org/fileformat2.html, §1.3.9). One below the archived store's is that of an older copy.
    private func contradiction(of header: DatabaseHeader?) -> String? {
        guard place.basis == .descendant, let header, let archived = try? StoreSnapshot(archived).header else {
            return nil
        }
        let commits = Int32(bitPattern: header.changeCounter &- archived.changeCounter)
        if commits < 0 { return "is an older state of the store" }
        return commits == 0 && header.journalMode == .rollback ? "was not changed through SQLite" : nil
    }

    private func assessment(_ reason: String) -> ArchiveAssessment {
        var assessment = ArchiveAssessment(.redundant(reason))
        assessment.counterpart = place.path
        return assessment
    }

    // MARK: Byte by byte

    /// Compares stores that SQLite can't read. Both must be single files.
    private func compareBytes(
        _ theirs: StoreSnapshot, whileProven body: (_ isProven: () throws -> Bool) throws -> Void
    ) throws -> Finding {
        let found = theirs.location
        guard !theirs.needsQuiescing else { return .contradicted("has other content") }
        let held = comparesOnly ? nil : HeldCounterpart(found)
        guard comparesOnly || held != nil else { return .contradicted(Self.inUse) }
        guard try archived.hasBytes(of: found, ignoringMode: true),
            try compareExternalData(found).isComplete
        else { return .contradicted("has other content") }
        try body {
            let now = try StoreSnapshot(found)
            return (held?.isIntact ?? true) && now.status == theirs.status && !now.needsQuiescing
        }
        return .elsewhere(assessment("\(PrintablePath(found.path)) holds the same bytes"))
    }
}

/// A store that no program has open for writing, nor opens for writing while this exists.
private final class HeldCounterpart {
    private let descriptor: Descriptor
    private let lease: FileLease

    /// Returns nil if a program has it open for writing, or if this user may not keep others from it.
    init?(_ store: StoreLocation) {
        guard let descriptor = try? store.directory.open(store.name.database, flags: O_RDONLY) else { return nil }
        for _ in 0..<100 {
            do {
                if let lease = try FileLease(descriptor, .read) {
                    self.lease = lease
                    self.descriptor = descriptor
                    return
                }
            } catch {
                return nil
            }
            pause(.microseconds(50))
        }
        return nil
    }

    var isIntact: Bool { lease.isIntact }
}
