import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Which archived sets to remove.
package struct ArchivePurge: Sendable {
    /// The named sets; nil for all.
    package var ids: [TransferIdentifier]?
    /// Only sets that were archived longer ago than this; nil for any age.
    package var age: Duration?
    /// True to remove also what nothing else holds, and what undoing a relocation needs.
    package var force = false

    package init(ids: [TransferIdentifier]?, age: Duration?, force: Bool) {
        self.ids = ids
        self.age = age
        self.force = force
    }

    func selects(_ set: ArchivedStore, now: Date) -> Bool {
        guard ids?.contains(set.id) ?? true else { return false }
        guard let age else { return true }
        // Without a note, the identifier has the time.
        let seconds = set.id.rawValue.split(separator: "-").first.flatMap { Double($0) } ?? 0
        let at = set.entry.note?.at ?? Date(timeIntervalSince1970: seconds)
        return now.timeIntervalSince(at) > age.seconds
    }
}

/// An archived set that a purge selected, and what becomes of it.
package struct PurgedArchive: Sendable {
    package let set: ArchivedStore
    package let value: ArchiveValue
    /// True if it is removed.
    package let isPurged: Bool
}

extension Relocation {
    /// Removes archived sets for good, or says what would be removed. Keeps sets that hold the only copy of something,
    /// unless they are named and forced. Throws `RelocationFailure`, before anything is removed, if a named set must be
    /// kept.
    package func purge(_ purge: ArchivePurge, dryRun: Bool) throws(RelocationFailure) -> [PurgedArchive] {
        do {
            let container = try RelocationEndpoints.container(request.group, request.identifier)
            guard !dryRun else { return try decide(purge, in: container) }
            // Without records there is nothing to remove, and none are made.
            guard try container.existingBookkeeping() != nil else { return try decide(purge, in: container) }
            return try withGroupLock(container) {
                let decided = try decide(purge, in: container)
                try container.purgeArchives(decided.filter(\.isPurged).map(\.set.id))
                return decided
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    private func decide(_ purge: ArchivePurge, in container: GroupContainer) throws -> [PurgedArchive] {
        let all = try ArchivedStore.all(in: container)
        for id in purge.ids ?? [] where !all.contains(where: { $0.id == id }) {
            throw RelocationFailure.noArchive(id.rawValue, in: container)
        }
        let now = Date()
        return try all.filter { purge.selects($0, now: now) }.map { set in
            let value = try ArchiveValue(of: set, in: container)
            let isPurged = value.mayBePurged(force: purge.force)
            if !isPurged, purge.ids != nil, let failure = value.failure(set, in: container) { throw failure }
            return PurgedArchive(set: set, value: value, isPurged: isPurged)
        }
    }
}

/// What would be lost with an archived set.
package enum ArchiveValue: Sendable, Equatable {
    /// Nothing: its content is elsewhere, for this reason.
    case redundant(String)
    /// A relocation that uses it is under way or was interrupted.
    case unfinished
    /// Undoing the last relocation of a store takes it, for this reason.
    case neededByUndo(String)
    /// It is the only copy, as far as can be seen, for this reason.
    case onlyCopy(String)

    package var word: String {
        switch self {
        case .redundant: "redundant"
        case .unfinished: "unfinished"
        case .neededByUndo: "needed_by_undo"
        case .onlyCopy: "only_copy"
        }
    }

    package var reason: String {
        switch self {
        case .redundant(let reason), .neededByUndo(let reason), .onlyCopy(let reason): reason
        case .unfinished: "a relocation that uses it is under way or was interrupted"
        }
    }

    func mayBePurged(force: Bool) -> Bool {
        switch self {
        case .redundant: true
        case .neededByUndo, .onlyCopy: force
        case .unfinished: false
        }
    }

    /// Returns the failure of a purge that names a set of this value; nil if there is no objection.
    func failure(_ set: ArchivedStore, in container: GroupContainer) -> RelocationFailure? {
        switch self {
        case .redundant: return nil
        case .unfinished:
            return RelocationFailure(
                .busy, code: "interrupted", "archive \(set.id) is in use: \(reason)",
                remedy: "run: groupstore recover \(container.directory.path.shellWord)")
        case .neededByUndo, .onlyCopy:
            let group = container.directory.path.shellWord
            return RelocationFailure(
                .conflict, code: word, "archive \(set.id) is kept: \(reason)",
                remedy: "restore it (groupstore archive restore \(group) \(set.id)), or remove it for good with --force"
            )
        }
    }
}

extension ArchiveValue {
    /// Looks for the set's content elsewhere: in the store that came from it, and at the places that had it or got a
    /// copy. Other archives don't count, since they may be purged too.
    init(of set: ArchivedStore, in container: GroupContainer) throws {
        switch set.state {
        case .unfinished: self = .unfinished
        case .leftovers where set.bytes == 0: self = .redundant("its files are empty")
        case .leftovers: self = .onlyCopy("it holds files that belong to no store")
        case .unknown where set.files.isEmpty: self = .redundant("it holds nothing")
        case .unknown, .incomplete: self = .onlyCopy(set.problem ?? "its content is not known")
        case .complete: self = try Self.ofStore(set, in: container)
        }
    }

    private static func ofStore(_ set: ArchivedStore, in container: GroupContainer) throws -> ArchiveValue {
        guard let archived = set.location, let note = set.entry.note else {
            return .onlyCopy("its content is not known")
        }
        let receipts = try container.receipts()
        let receipt = receipts.last { $0.id == set.id }
        if let receipt, let name = receipt.name.path.lastComponent {
            let place = PrintablePath(container.directory.path.appending(name))
            let isThere = try receipt.isOfStore(in: container)
            switch receipt.method {
            case .migrate, .replace, .merge:
                let isLast = receipts.last { $0.name == receipt.name }?.id == receipt.id
                if isThere, isLast { return .neededByUndo("it is \(place) as it was before a migration") }
            case .rename, .reflink, .copy:
                if isThere { return .redundant("\(place) is the same store, and has gone on since") }
            }
        }
        let places =
            [container.directory.path.appending(archived.name.database), note.from.path]
            + (note.restored ?? []).map(\.to.path)
        for place in places {
            if try Self.holdsContent(of: archived, note, at: place) {
                return .redundant("\(PrintablePath(place)) holds its content")
            }
        }
        if try Self.holdsNothing(archived, set) { return .redundant("it holds no rows and no external data") }
        return .onlyCopy("no other place is known that holds its content")
    }

    /// Returns true if the store there is a copy that was restored from the archive, or has the same content.
    private static func holdsContent(of archived: StoreLocation, _ note: ArchiveNote, at place: FilePath) throws -> Bool
    {
        guard let found = try? RelocationEndpoints.unresolved(place),
            !GroupContainer.isBookkeeping(found.directory.path),
            let status = try found.directory.status(found.name.database), status.kind == .regular
        else { return false }
        let birth = found.directory.birth(found.name.database)
        let isRestored = (note.restored ?? []).contains { $0.to.path == place && $0.isCopy(status, birth: birth) }
        if isRestored { return true }
        do {
            let (one, other) = (try StoreSnapshot(archived), try StoreSnapshot(found))
            guard one.header != nil, other.header != nil else {
                guard try archived.hasBytes(of: found) else { return false }
                return try archived.hasExternalDataWithin(found)
            }
            guard try StoreContents.areEqual(one, other) else { return false }
            return try archived.hasExternalDataWithin(found)
        } catch {
            // What can't be compared proves nothing.
            return false
        }
    }

    private static func holdsNothing(_ archived: StoreLocation, _ set: ArchivedStore) throws -> Bool {
        let external = set.files.contains { $0.path.components.count > 1 && $0.size > 0 }
        guard !external, case let snapshot = try StoreSnapshot(archived), snapshot.header != nil else { return false }
        return (try? StoreContents.isSchemaOnly(snapshot, countingRows: true)) == true
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
