import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The result of transforming a copy.
package struct TransformedStore: Sendable, Equatable {
    /// The content before and after, in the transform's own terms: versions of a model. `before` is nil if it was
    /// unknown.
    package let before: String?
    package let after: String
    /// The content that the copy lacks. If there is any, the original store is archived.
    package let losses: RemovedContent
    /// Notes for the user.
    package let notes: [String]

    package init(before: String?, after: String, losses: RemovedContent = .none, notes: [String] = []) {
        self.before = before
        self.after = after
        self.losses = losses
        self.notes = notes
    }
}

/// A change of a store's content as part of its relocation, such as a migration to another model. Its meaning is not
/// known here: a copy is made, changed, and published in the store's place.
package protocol StoreTransform: Sendable {
    /// The content afterwards, in the transform's own terms.
    var target: String { get }

    /// Returns true if a program that can open only stores of these versions can open the result. A version is given by
    /// its name, one of its identifiers or its checksum.
    func isOpenable(knowing versions: Set<String>) -> Bool

    /// Returns this change with its plan for a store, which it needn't make again for that store or a copy. Returns the
    /// change as it is if there is no plan; `isNeeded` throws the reason. Changes nothing.
    func planned(for store: StoreLocation) -> Self

    /// Returns true if the store needs the change. Changes nothing. Throws `RelocationFailure` if the store can't be
    /// changed.
    func isNeeded(_ store: StoreLocation) throws -> Bool

    /// Returns false if the change keeps all content, whatever the store contains: nothing is archived then. Changes
    /// nothing. Throws `RelocationFailure`.
    func mayRemoveContent(of store: StoreLocation) throws -> Bool

    /// Tries the change on a private copy. Returns what `run` would, or nil if the store needs no change. Throws
    /// `RelocationFailure` if the change would fail.
    ///
    /// - Parameter isMoved: True if the store moves to another place with its support folder.
    func rehearse(_ store: StoreLocation, isMoved: Bool) throws -> TransformedStore?

    /// Changes `staged`, a copy of `store` in rollback mode that no other process has open. If it throws, the copy is
    /// discarded.
    ///
    /// The support folder lies beside `supportOwner`: the copy, or the store itself, which is then only read.
    func run(
        on staged: StoreLocation, of store: FilePath, supportBeside supportOwner: StoreLocation,
        progress: (_ fraction: Double, _ activity: String) -> Void
    ) throws -> TransformedStore
}

extension StoreTransform {
    package func planned(for store: StoreLocation) -> Self { self }
    package func mayRemoveContent(of store: StoreLocation) throws -> Bool { false }
    package func rehearse(_ store: StoreLocation, isMoved: Bool) throws -> TransformedStore? { nil }
}

extension Relocation {
    /// Returns this relocation with the transform planned for a store. What the relocation decides about the store, and
    /// what it does to a copy, follow from that one plan.
    func planned(for store: StoreLocation) -> Relocation {
        guard let transform = request.transform, case .sqlite? = try? StoreSnapshot(store).database else { return self }
        var relocation = self
        relocation.request.transform = transform.planned(for: store)
        return relocation
    }

    /// Changes the store in place: a relocation whose destination is its own name. Throws `RelocationFailure`; the
    /// store is then unchanged.
    package func transform() throws(RelocationFailure) -> RelocationSummary {
        do {
            let endpoints = try RelocationEndpoints(request)
            let relocation = try claiming(endpoints.group.name.database, in: endpoints.container)
            defer { relocation.claim?.end(published: false) }
            return try relocation.withGroupLock(
                endpoints.container, afterRecovering: [endpoints.group, endpoints.legacy]
            ) {
                let endpoints = try RelocationEndpoints(request)
                relocation.relinquish(endpoints)
                defer { relocation.reacquire(endpoints) }
                var summary = RelocationSummary(.nothingToDo, from: endpoints.group.path, to: endpoints.group.path)
                try relocation.planned(for: endpoints.group).transformInPlace(endpoints, &summary)
                return summary
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Changes the group's store if needed, and records that in the summary.
    func transformInPlace(_ endpoints: RelocationEndpoints, _ summary: inout RelocationSummary) throws {
        // Return before the snapshot: its failure must not fail a relocation that is already complete.
        guard request.transform != nil else { return }
        let snapshot = try StoreSnapshot(endpoints.group)
        guard let content = try content(of: endpoints.group) else { return }
        guard snapshot.status?.links == 1 else { throw RelocationFailure.severalNames(endpoints.group.path) }
        let decision = try decisionInPlace(endpoints)
        report(.plan(content.sentence(inPlace: endpoints.group.path), bytesToCopy: decision.bytesToCopy))
        let outcome = try publish(.init(publishing: content, of: snapshot, decision, inPlace: true))
        if summary.outcome == .nothingToDo || endpoints.isSameStore { summary.outcome = .migrated }
        summary.add(outcome)
    }
}

extension RelocationFailure {
    static func severalNames(_ path: FilePath) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "hard_linked", "\(PrintablePath(path)) is one file with several names",
            remedy: "remove the other names: the store would have a journal under each")
    }
}
