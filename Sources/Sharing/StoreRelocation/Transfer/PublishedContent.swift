import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Creates a store to replace one that can't be changed as requested. What it contains is not known here.
package protocol StoreReplacement: Sendable {
    /// A phrase for the user: `an empty store of Notes 3`.
    var description: String { get }
    /// The approximate size in bytes.
    var bytes: Int64 { get }

    /// Throws `RelocationFailure` if the store can't be created.
    func check() throws

    /// Creates the store in the empty file at `staged`, which no other process knows, and its folder of external data
    /// beside it. If it throws, both are discarded. `old` is only read.
    func make(
        at staged: StoreLocation, replacing old: StoreLocation,
        progress: (_ fraction: Double, _ activity: String) -> Void
    ) throws -> TransformedStore
}

/// A store that couldn't be changed, and the archive that keeps it.
package struct SetAsideStore: Sendable, Equatable {
    /// The store's former path.
    package let store: FilePath
    package let archive: FilePath
    /// A sentence for the user.
    package let reason: String
}

/// The content that is published in a store's place.
enum PublishedContent {
    /// The store itself.
    case same
    case transformed(any StoreTransform)
    /// Another store. The reason is noted in the archive with the old one.
    case replaced(any StoreReplacement, reason: String)
    /// The store with the rows of another one, whose bytes have this hash.
    case merged(any StoreCombination, legacy: StoreLocation, hash: String)

    /// True if something other than the store itself is published.
    var isNew: Bool { if case .same = self { false } else { true } }

    var isTransformed: Bool { if case .transformed = self { true } else { false } }

    /// Returns a sentence on what is done to the store that this content replaces.
    func sentence(inPlace store: FilePath) -> String {
        guard case .replaced(let replacement, let reason) = self else {
            return "change \(PrintablePath(store)) in place"
        }
        return "archive \(PrintablePath(store)) (\(reason)), and create \(replacement.description) in its place"
    }

    /// The reason for setting the store aside; nil if it isn't.
    var reason: String? { if case .replaced(_, let reason) = self { reason } else { nil } }

    /// The reason for keeping the original store in the archive, with its external data; nil if it isn't.
    var archiveReason: String? {
        switch self {
        case .same, .transformed: nil
        case .replaced(_, let reason): reason
        case .merged(_, let legacy, _):
            "the store as it was before the rows of \(PrintablePath(legacy.path)) were merged into it"
        }
    }
}

extension Relocation {
    /// Returns the content to publish in place of a database, or nil if that is the store itself or there is none.
    /// Throws `RelocationFailure` if the store can't be changed and nothing replaces it.
    func content(of store: StoreLocation) throws -> PublishedContent? {
        guard let transform = request.transform, case .sqlite = try StoreSnapshot(store).database else { return nil }
        do {
            guard try transform.isNeeded(store) else { return nil }
            try checkPresenters(transform)
            return .transformed(transform)
        } catch let failure as RelocationFailure {
            return try replacement(after: failure)
        }
    }

    /// Returns the replacement for a store that can't be changed. Throws `failure` if there is none.
    func replacement(after failure: RelocationFailure) throws -> PublishedContent {
        guard failure.isIncompatible, let replacement = request.replacement else { throw failure }
        if let transform = request.transform { try checkPresenters(transform) }
        try replacement.check()
        return .replaced(replacement, reason: "it can't be migrated: " + failure.message)
    }

    /// Returns the decision in one sentence.
    func sentence(_ decision: RelocationDecision, _ content: PublishedContent) -> String {
        if case .replaced = content { return content.sentence(inPlace: decision.endpoints.legacy.path) }
        return decision.sentence
    }

    func addingNotes(to outcome: StoreTransfer.Outcome, of store: StoreLocation) -> StoreTransfer.Outcome {
        var outcome = outcome
        if let archive = outcome.archive {
            outcome.notes.append(
                "\(PrintablePath(store.path)) is kept in \(PrintablePath(archive)) as it was, since the migration changes "
                    + "or removes some of it")
        }
        guard let setAside = outcome.setAside, let replacement = request.replacement else { return outcome }
        outcome.notes.insert(
            "\(PrintablePath(setAside.store)) is in \(PrintablePath(setAside.archive)): \(setAside.reason); "
                + "\(replacement.description) has replaced it", at: 0)
        return outcome
    }

    /// Returns true if the group's store needs to be changed or replaced. Throws `RelocationFailure` if it can't be.
    package func isOutdated() throws(RelocationFailure) -> Bool {
        do {
            let endpoints = try RelocationEndpoints(request)
            relinquish(endpoints)
            defer { reacquire(endpoints) }
            return try content(of: endpoints.group) != nil
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// This relocation for the group's own store, which may be of an older model, for use if there is no legacy
    /// directory and so no legacy store. Nil if the group's store doesn't exist or needs no change.
    var forGroupStoreOnly: Relocation? {
        let path = request.group.appending(request.name ?? request.source.lastComponent ?? .currentDirectory)
        guard request.transform != nil, FileStatus(following: path) != nil else { return nil }
        var relocation = self
        relocation.request.source = path
        relocation.request.name = nil
        return relocation
    }

    /// Throws `RelocationFailure` if a registered presenter could not open the legacy store as it will be published, so
    /// that none is asked to release it in vain. Any other obstacle is described once the store is claimed.
    mutating func checkPresentersBeforeClaim(_ endpoints: RelocationEndpoints) throws {
        let item = endpoints.container.item(endpoints.group.name.database)
        guard request.transform != nil, registry.presenters(of: item).contains(where: { $0.versions != nil }),
            case .sqlite? = try? StoreSnapshot(endpoints.legacy).database
        else { return }
        self = planned(for: endpoints.legacy)
        guard let transform = request.transform, (try? transform.isNeeded(endpoints.legacy)) == true else { return }
        try checkPresenters(transform)
    }

    /// Throws `RelocationFailure` if a registered presenter could not open the changed store.
    private func checkPresenters(_ transform: any StoreTransform) throws {
        guard let name = request.name ?? request.source.lastComponent else { return }
        let item = try RelocationEndpoints.container(request.group, request.identifier).item(name)
        let lockedOut = registry.presenters(of: item).filter { presenter in
            presenter.versions.map { !transform.isOpenable(knowing: $0) } ?? false
        }
        guard let first = lockedOut.first else { return }
        let versions = (first.versions ?? []).sorted().joined(separator: ", ")
        var failure = RelocationFailure(
            .busy, code: "presenter_locked_out",
            "\(PrintablePath(request.group.appending(name))) is presented by \(lockedOut.map(\.holder).list), which "
                + "can't open stores of \(transform.target), only of \(versions.isEmpty ? "none" : versions)",
            remedy: "update that program, or quit it, then try again")
        failure.holders = lockedOut.map(\.holder)
        throw failure
    }
}
