import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The proof that an archived set's content is elsewhere: by what is read there, never by a name, an inode or a record.
struct ArchiveProof {
    let set: ArchivedStore
    let container: GroupContainer
    /// The files of all of the group's archived sets, which prove nothing, under whatever name.
    private let archivedFiles: Set<FileIdentity>
    private let isCancelled: () -> Bool
    /// The state of the set's files before anything is compared.
    private let files: ArchivedFiles

    init(
        of set: ArchivedStore, in container: GroupContainer, archived: Set<FileIdentity>,
        isCancelled: @escaping () -> Bool
    ) throws {
        self.set = set
        self.container = container
        archivedFiles = archived
        self.isCancelled = isCancelled
        files = try ArchivedFiles.settled(in: set.entry.directory)
    }

    /// Removes the set, if its files are still these and `isProven` still returns true.
    typealias Removal = (_ files: ArchivedFiles, _ isProven: () throws -> Bool) throws -> Void

    /// Looks for the set's content in the store that came from it, and at the places that had it or got a copy. Other
    /// archives don't count, since they may be purged too.
    ///
    /// - Parameter remove: Called while the proof holds, and at most once.
    func assess(whileProven remove: Removal? = nil) throws -> ArchiveAssessment {
        do {
            return try assessment(whileProven: remove)
        } catch let error as ArchiveRemoval.InUse {
            return ArchiveAssessment(.inUse(error.reason))
        }
    }

    private func assessment(whileProven remove: Removal?) throws -> ArchiveAssessment {
        if set.state == .unfinished { return ArchiveAssessment(.unfinished) }
        if files.isEmpty { return try redundant("it holds nothing", remove) }
        switch set.state {
        case .unfinished: return ArchiveAssessment(.unfinished)
        case .leftovers where files.areEmptyFiles: return try redundant("its files are empty", remove)
        case .leftovers: return ArchiveAssessment(.onlyCopy("it holds files that belong to no store"))
        case .unknown, .incomplete:
            return ArchiveAssessment(.onlyCopy(set.problem ?? "its content is not known"))
        case .complete: break
        }
        guard let archived = set.location, let note = set.entry.note else {
            return ArchiveAssessment(.onlyCopy("its content is not known"))
        }
        if let other = files.first(besidesStoreNamed: archived.name) {
            return ArchiveAssessment(.onlyCopy("it holds \(PrintablePath(other)) too, which was not archived"))
        }
        let candidates = try self.candidates(archived, note)
        if case .undo(let reason) = candidates { return ArchiveAssessment(.neededByUndo(reason)) }
        var reasons: [String] = []
        for place in candidates.places {
            let counterpart = ArchiveCounterpart(
                place: place, archived: archived, excluded: archivedFiles, isCancelled: isCancelled,
                support: archived.name.support)
            switch try counterpart.compare(whileProven: { isProven in try remove?(files, isProven) }) {
            case .elsewhere(let assessment): return assessment
            case .absent: break
            case .contradicted(let reason): reasons.append("\(PrintablePath(place.path)) \(reason)")
            }
        }
        if try holdsNothing(archived) { return try redundant("it holds no rows and no external data", remove) }
        let reason =
            reasons.isEmpty ? "no other place is known that holds its content" : reasons.joined(separator: "; ")
        return ArchiveAssessment(.onlyCopy(reason))
    }

    /// The set's own files show that there is nothing to lose.
    private func redundant(_ reason: String, _ remove: Removal?) throws -> ArchiveAssessment {
        try remove?(files) { true }
        return ArchiveAssessment(.redundant(reason))
    }

    private func holdsNothing(_ archived: StoreLocation) throws -> Bool {
        guard !files.haveExternalData, case let snapshot = try StoreSnapshot(archived), snapshot.header != nil,
            (try? StoreContents.isSchemaOnly(snapshot, countingRows: true)) == true
        else { return false }
        return (try? StoreIntegrity(archived, isCancelled: isCancelled).isIntact) == true
    }

    // MARK: Places

    private enum Candidates {
        case undo(String)
        case places([ArchiveCounterpart.Place])

        var places: [ArchiveCounterpart.Place] { if case .places(let places) = self { places } else { [] } }
    }

    private func candidates(_ archived: StoreLocation, _ note: ArchiveNote) throws -> Candidates {
        var places: [ArchiveCounterpart.Place] = []
        let receipts = try container.receipts()
        if let receipt = receipts.last(where: { $0.id == set.id }), let name = receipt.name.path.lastComponent {
            let path = container.directory.path.appending(name)
            let isThere = try receipt.isOfStore(in: container)
            switch receipt.method {
            case .migrate, .replace, .merge:
                let isLast = receipts.last { $0.name == receipt.name }?.id == receipt.id
                if isThere, isLast { return .undo("it is \(receipt.method.former(of: path))") }
            case .rename, .reflink, .copy:
                // Only the file that was published may have gone on: any other must have the same content.
                places.append(.init(path: path, basis: isThere ? basis(note.archived, archived, note) : .equal))
            }
        }
        for restored in note.restored ?? [] {
            let isThere = try isCopy(restored)
            places.append(
                .init(path: restored.to.path, basis: isThere ? basis(restored.archived, archived, note) : .equal))
        }
        for path in [container.directory.path.appending(archived.name.database), note.from.path]
        where !places.contains(where: { $0.path == path }) {
            places.append(.init(path: path, basis: .equal))
        }
        return .places(places)
    }

    /// Returns what the store that was made from the archived one, and may have gone on since, must hold of it: every
    /// row, unless nobody has written to the archived one since.
    private func basis(
        _ state: ArchiveNote.FileState?, _ archived: StoreLocation, _ note: ArchiveNote
    ) -> ArchiveCounterpart.Basis {
        let isUnwritten = [state, note.archived].compactMap(\.self).contains { archived.isUnwritten(since: $0) }
        return isUnwritten ? .descendant : .superset
    }

    private func isCopy(_ restored: ArchiveNote.Restoration) throws -> Bool {
        guard let found = try? RelocationEndpoints.unresolved(restored.to.path),
            let status = try found.directory.status(found.name.database)
        else { return false }
        return restored.isCopy(status, birth: found.directory.birth(found.name.database))
    }
}

extension Transfer.Method {
    /// A phrase for the store that was changed in place, as it was.
    fileprivate func former(of path: FilePath) -> String {
        switch self {
        case .merge: "\(PrintablePath(path)) as it was before a merge or a rescue"
        case .replace: "the former store of \(PrintablePath(path)), which could not be migrated"
        case .migrate, .rename, .reflink, .copy: "\(PrintablePath(path)) as it was before a migration"
        }
    }
}

extension StoreLocation {
    /// Returns true if nobody has written to the database since it had this state. False if that can't be told.
    fileprivate func isUnwritten(since state: ArchiveNote.FileState) -> Bool {
        guard let snapshot = try? StoreSnapshot(self), let status = snapshot.status, status.kind == .regular else {
            return false
        }
        if let hash = state.hash { return (try? StoreContents.publishedHash(snapshot)) == hash }
        return ArchiveNote.FileState(status) == state
    }
}

extension RelocationReceipt {
    /// Returns true if the store that was relocated is still in the group's directory, written to or not. A file that
    /// was created later is another one, even if it has the inode.
    fileprivate func isOfStore(in container: GroupContainer) throws -> Bool {
        guard let name = name.path.lastComponent, let published, let status = try container.directory.status(name)
        else { return false }
        if published.isUnchanged(in: status) { return true }
        guard published.isSameFile(as: status), let birth = container.directory.birth(name) else { return false }
        // The receipt's time is in whole seconds, rounded down, and not before the file's creation.
        return Double(birth) / 1e9 < at.timeIntervalSince1970.rounded(.down) + 1
    }
}
