import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store that is made where one can't be changed into what is asked for, and takes its place. What it holds is not known
/// here.
package protocol StoreReplacement: Sendable {
    /// What is made, for a person: `an empty store of Notes 3`.
    var description: String { get }
    /// About how many bytes it takes.
    var bytes: Int64 { get }

    /// Throws `RelocationFailure` where it can't be made.
    func check() throws

    /// Makes it in the empty file at `staged`, which nobody else knows, and its folder of external data beside it. When it
    /// throws, both are discarded. `old` is only looked at.
    func make(
        at staged: StoreLocation, instead old: StoreLocation,
        progress: (_ fraction: Double, _ doing: String) -> Void
    ) throws -> TransformedStore
}

/// A store that couldn't be changed, and where it is kept.
package struct SetAsideStore: Sendable, Equatable {
    /// Where it was.
    package let store: FilePath
    package let archive: FilePath
    /// A sentence.
    package let reason: String
}

/// What is published in a store's place.
enum PublishedContent {
    /// The store itself.
    case same
    case transformed(any StoreTransform)
    /// Another store; the reason why goes to the archive with the old one.
    case replaced(any StoreReplacement, reason: String)

    /// Whether the store itself is not what is published.
    var isNew: Bool { if case .same = self { false } else { true } }

    var isTransformed: Bool { if case .transformed = self { true } else { false } }

    /// What is done to a store whose place it takes.
    func sentence(inPlace store: FilePath) -> String {
        guard case .replaced(let replacement, let reason) = self else {
            return "change \(PrintablePath(store)) at its place"
        }
        return "archive \(PrintablePath(store)) (\(reason)), and make \(replacement.description) instead"
    }

    /// Why the store is set aside; nil when it isn't.
    var reason: String? { if case .replaced(_, let reason) = self { reason } else { nil } }
}

extension Relocation {
    /// What is published in the place of a database; nil when it is the store itself, or when there is none. Throws
    /// `RelocationFailure` where it can't be changed and nothing is to replace it.
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

    /// What replaces a store that can't be changed. Throws `failure` where nothing does.
    private func replacement(after failure: RelocationFailure) throws -> PublishedContent {
        guard failure.isIncompatible, let replacement = request.replacement else { throw failure }
        if let transform = request.transform { try checkPresenters(transform) }
        try replacement.check()
        return .replaced(replacement, reason: "it can't be migrated: " + failure.message)
    }

    /// Gives the store the place that is asked for, with that content; and where it turns out that it can't be made of it,
    /// gives the place to what replaces it.
    func publish(
        _ content: PublishedContent, _ store: StoreLocation, _ sighting: StoreSnapshot, _ decision: RelocationDecision,
        inPlace: Bool = false
    ) throws -> StoreTransfer.Done {
        func run(_ content: PublishedContent) throws -> StoreTransfer.Done {
            let name = decision.places.group.name.database
            return try transfer(
                .publish(as: StoredPath(FilePath(root: nil, [name]))), store, sighting, decision, content: content,
                inPlace: inPlace)
        }
        do {
            return try noting(run(content), store)
        } catch let failure as RelocationFailure {
            // What was found only when each row was looked at.
            return try noting(run(replacement(after: failure)), store)
        }
    }

    /// What is decided, in words.
    func sentence(_ decision: RelocationDecision, _ content: PublishedContent) -> String {
        if case .replaced = content { return content.sentence(inPlace: decision.places.legacy.path) }
        return decision.sentence
    }

    private func noting(_ done: StoreTransfer.Done, _ store: StoreLocation) -> StoreTransfer.Done {
        var done = done
        if let archive = done.archive {
            done.notes.append(
                "\(PrintablePath(store.path)) is kept in \(PrintablePath(archive)) as it was, since the migration changes "
                    + "or removes some of it")
        }
        guard let setAside = done.setAside, let replacement = request.replacement else { return done }
        done.notes.insert(
            "\(PrintablePath(setAside.store)) is in \(PrintablePath(setAside.archive)): \(setAside.reason); "
                + "its place has \(replacement.description)", at: 0)
        return done
    }

    /// Whether the group's store is to be changed or replaced. Throws `RelocationFailure` where it can't be.
    package func isOutdated() throws(RelocationFailure) -> Bool {
        do {
            let places = try RelocationEndpoints(request)
            relinquish(places)
            defer { reacquire(places) }
            return try content(of: places.group) != nil
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// What would come of a plan, for a dry run. Throws the failure that it would end with.
    func prospect(_ decision: RelocationDecision) throws -> RelocationSummary {
        let places = decision.places
        var summary = RelocationSummary(.alreadyRelocated, from: request.source, to: places.group.path)
        var store = places.group
        switch decision.plan {
        case .conflict, .refuse:
            report(.plan(decision.sentence, bytesToCopy: 0))
            throw try decision.failure()
        case .alreadyRelocated, .archiveLegacy, .retireLegacy: break
        case .nothingToDo: summary.outcome = .nothingToDo
        case .relocate:
            summary.outcome = .relocated
            summary.method = decision.needsCopy ? .copy : .rename
            store = places.legacy
        }
        let content = try content(of: store) ?? .same
        let isInPlace = summary.outcome != .relocated
        report(.plan(sentence(decision, isInPlace ? .same : content), bytesToCopy: decision.bytesToCopy))
        try rehearse(content, of: store, decision, isInPlace: isInPlace, &summary)
        return summary
    }

    /// What would come of the group's store, where there is no other.
    func prospectInPlace() throws -> RelocationSummary {
        let places = try RelocationEndpoints(request)
        relinquish(places)
        defer { reacquire(places) }
        var summary = RelocationSummary(.nothingToDo, from: places.group.path, to: places.group.path)
        guard let content = try content(of: places.group) else { return summary }
        let decision = try RelocationDecision(places, request)
        try rehearse(content, of: places.group, decision, isInPlace: true, &summary)
        return summary
    }

    private func rehearse(
        _ content: PublishedContent, of store: StoreLocation, _ decision: RelocationDecision, isInPlace: Bool,
        _ summary: inout RelocationSummary
    ) throws {
        let places = decision.places
        guard content.isNew else { return }
        if content.isTransformed, let transform = request.transform {
            let rehearsed = try transform.rehearse(store, isMoved: !isInPlace)
            summary.losses = rehearsed?.losses ?? .none
            summary.notes = rehearsed?.notes ?? []
            if !summary.losses.isEmpty {
                let bytes = try store.bytesToArchive()
                summary.notes.append(
                    "\(PrintablePath(store.path)) would be kept in \(PrintablePath(places.container.archivePath)) as it is, "
                        + "since the migration changes or removes some of it; that takes \(bytes) bytes")
            }
        }
        if isInPlace {
            report(.plan(content.sentence(inPlace: store.path), bytesToCopy: decision.bytesToCopy))
            if summary.outcome == .nothingToDo || places.areOne { summary.outcome = .migrated }
        }
        summary.method = .migrate
        if content.reason != nil { (summary.outcome, summary.method) = (.setAside, .replace) }
    }

    /// Where there is no legacy directory, and so no legacy store: this engine, for the group's own, which may be of an
    /// older model. Nil where that isn't there, or isn't to be changed.
    var forGroupsStore: Relocation? {
        let path = request.group.appending(request.name ?? request.source.lastComponent ?? .currentDirectory)
        guard request.transform != nil, FileStatus(following: path) != nil else { return nil }
        var engine = self
        engine.request.source = path
        engine.request.name = nil
        return engine
    }

    /// Throws `RelocationFailure` where a registered presenter could not open the store afterwards.
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
