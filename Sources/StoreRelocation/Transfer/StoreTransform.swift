import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// What a transform has made of a copy.
package struct TransformedStore: Sendable, Equatable {
    /// What the content was, and what it is, in the words of whoever changes it: versions of a model. Nil where it was
    /// none that is known.
    package let before: String?
    package let after: String
    /// What the copy has no more: the store as it was goes to the archive then.
    package let losses: RemovedContent
    /// What a person should know.
    package let notes: [String]

    package init(before: String?, after: String, losses: RemovedContent = .none, notes: [String] = []) {
        self.before = before
        self.after = after
        self.losses = losses
        self.notes = notes
    }
}

/// A change of a store's content that goes with its relocation, such as a migration to another model. What it means is
/// not known here: a copy is made, changed, and published in the store's place.
package protocol StoreTransform: Sendable {
    /// What the content is afterwards, in the words of whoever changes it.
    var target: String { get }

    /// Whether a program that can open stores of these versions only can open what is made. A version goes by its name, one
    /// of its identifiers or its checksum.
    func isOpenable(knowing versions: Set<String>) -> Bool

    /// Whether the store is to be changed at all; nothing of it is. Throws `RelocationFailure` where it can't be.
    func isNeeded(_ store: StoreLocation) throws -> Bool

    /// What it would remove from the store; nothing of it is changed. Throws `RelocationFailure`.
    func losses(from store: StoreLocation) throws -> RemovedContent

    /// Tries it on a private copy; nothing of the store is changed. Returns what `run` would; nil where the store isn't one to
    /// be changed. Throws `RelocationFailure` where it would not go through.
    ///
    /// - Parameter isMoved: Whether the store goes to another place, with its support folder.
    func rehearse(_ store: StoreLocation, isMoved: Bool) throws -> TransformedStore?

    /// Changes the copy of `store`, which nobody else has open, in rollback mode. When it throws, the copy is discarded. The
    /// support folder lies beside `keeper`: the copy, or the store itself, which is only read then.
    func run(
        on staged: StoreLocation, of store: FilePath, supportBeside keeper: StoreLocation,
        progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> TransformedStore
}

extension StoreTransform {
    package func losses(from store: StoreLocation) throws -> RemovedContent { .none }
    package func rehearse(_ store: StoreLocation, isMoved: Bool) throws -> TransformedStore? { nil }
}

extension Relocation {
    /// Changes the store at its place: a relocation whose destination is its own name. Throws `RelocationFailure`; the
    /// store is then as it was.
    package func transform() throws(RelocationFailure) -> RelocationSummary {
        do {
            let places = try RelocationEndpoints(request)
            let engine = try claimed(places.group.name.database, in: places.container)
            defer { engine.claim?.end(published: false) }
            return try engine.locked(places.container, for: [places.group, places.legacy]) {
                let places = try RelocationEndpoints(request)
                engine.relinquish(places)
                defer { engine.reacquire(places) }
                var summary = RelocationSummary(.nothingToDo, from: places.group.path, to: places.group.path)
                try engine.transformInPlace(places, &summary)
                return summary
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Changes the group's store where that is needed, and says so in the summary.
    func transformInPlace(_ places: RelocationEndpoints, _ summary: inout RelocationSummary) throws {
        // What was done before can't be said to have failed because of a look that nobody needs.
        guard request.transform != nil else { return }
        let seen = try StoreSnapshot(places.group)
        guard let content = try content(of: places.group) else { return }
        guard seen.status?.links == 1 else { throw RelocationFailure.severalNames(places.group.path) }
        var request = request
        request.source = places.group.path
        request.name = nil
        request.retirement = .delete
        let decision = try RelocationDecision(RelocationEndpoints(request), request)
        try RelocationPreconditions(decision).check()
        report(.plan(content.sentence(inPlace: places.group.path), bytesToCopy: decision.bytesToCopy))
        let done = try publish(content, places.group, seen, decision, inPlace: true)
        summary.setAside = done.setAside
        if done.setAside != nil {
            summary.outcome = .setAside
        } else if summary.outcome == .nothingToDo || places.areOne {
            summary.outcome = .migrated
        }
        summary.method = done.method
        summary.bytes = done.bytes
        summary.notes += done.notes
        summary.transformed = done.transformed
        summary.archive = done.archive
        summary.losses = done.transformed?.losses ?? .none
    }
}

extension RelocationFailure {
    static func severalNames(_ path: FilePath) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "hard_linked", "\(PrintablePath(path)) is one file under several names",
            remedy: "remove the other names: the store would have a journal under each")
    }
}
