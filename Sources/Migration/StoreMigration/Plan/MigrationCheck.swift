import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// A judgement whether and how stores of one version can be opened with another, as in `groupstore model check`. It is
/// a pure function of the models and reads no store.
///
///     let check = MigrationCheck(from: old, hashes: old.entityVersionHashesByName, to: new, named: "Notes 2")
///     if case .refused(let code) = check.verdict { print(code, check.findings.map(\.message)) }
public struct MigrationCheck: Sendable {
    /// The way in which a store of the older version can be opened.
    public enum Verdict: Equatable, Sendable {
        /// All entity hashes are equal: the store is opened as it is.
        case compatible
        /// One step, by an inferred mapping.
        case inferred(MappingModel)
        /// One step, by a mapping model.
        case mapped(MappingModel)
        /// Several steps, by inferred mappings and mapping models. The value lists the version that each step leads to;
        /// the last one is the newer model's.
        case stepwise([String])
        /// No migration is possible; `code` is Core Data's, see `CoreDataError`.
        case refused(code: Int)
    }

    /// The way in which a store can be opened.
    public let verdict: Verdict
    /// The reasons for a refusal; otherwise warnings and notes.
    public let findings: [MigrationFinding]
    /// The mapping model's name for each step; nil if the step's mapping is inferred.
    public let mappingNames: [String?]
    /// The steps in the order they run.
    package let steps: [MigrationStep]
    /// The content that the steps remove from a store, if one was inspected.
    package private(set) var losses = RemovedContent.none
    /// The entities whose hashes differ between the models, or that only one model has, sorted by name.
    public let differingEntities: [DifferingEntity]

    /// An entity whose version hashes differ.
    public struct DifferingEntity: Equatable, Sendable {
        /// The entity's name.
        public let name: String
        /// The 32 bytes of the older version hash; nil if the older model has no such entity.
        public let oldHash: [UInt8]?
        /// The 32 bytes of the newer version hash; nil if the newer model has no such entity.
        public let newHash: [UInt8]?
    }

    /// Judges a migration from one model to another.
    ///
    /// - Parameters:
    ///   - old: The older model; nil if only a store's hashes are known.
    ///   - oldName: The older version's name; nil if unknown.
    ///   - hashes: The version hashes of the older model or the store, by entity name.
    ///   - new: The newer model.
    ///   - newName: The newer version's name.
    ///   - intermediates: The versions between the two for a migration in steps, the oldest first.
    ///   - mappings: The available mapping models. One that fits takes precedence over inference, as in Core Data.
    public init(
        from old: ManagedObjectModel?, sourceName oldName: String? = nil, hashes: [String: [UInt8]],
        to new: ManagedObjectModel, named newName: String,
        intermediates: [(name: String, model: ManagedObjectModel)] = [], mappings: [MappingModelFile] = []
    ) {
        self.init(
            from: old, sourceName: oldName, hashes: hashes, to: new, named: newName, intermediates: intermediates,
            using: MigrationStepCache(mappings))
    }

    /// Judges one of several migrations, which share their steps in the cache.
    package init(
        from old: ManagedObjectModel?, sourceName oldName: String? = nil, hashes: [String: [UInt8]],
        to new: ManagedObjectModel, named newName: String,
        intermediates: [(name: String, model: ManagedObjectModel)] = [], using cache: MigrationStepCache
    ) {
        differingEntities = Self.difference(hashes, new.entityVersionHashesByName)
        guard !differingEntities.isEmpty else {
            (verdict, findings, mappingNames, steps) = (.compatible, [], [], [])
            return
        }
        guard let old else {
            verdict = .refused(code: CoreDataError.missingSourceModel)
            (findings, mappingNames, steps) = ([.missingSourceModel], [], [])
            return
        }
        if let fault = cache.layoutFault(of: new) {
            verdict = .refused(code: CoreDataError.migration)
            (findings, mappingNames, steps) = ([MigrationFinding(fault: fault)], [], [])
            return
        }
        let path: [MigrationStep]?
        do {
            path = try MigrationPath.shortest(
                from: (oldName, old), to: (newName, new), through: intermediates, using: cache)
        } catch {
            verdict = .refused(code: error.code)
            (findings, mappingNames, steps) = ([MigrationFinding(error)], [], [])
            return
        }
        steps = path ?? []
        mappingNames = steps.map(\.mappingName)
        switch path?.count {
        case nil:
            verdict = .refused(code: CoreDataError.missingMappingModel)
            findings =
                Self.reasons(from: old, to: new) + MigrationReview(old, new).findings.filter { $0.severity != .note }
        case 1:
            verdict = steps[0].verdict
            findings = steps[0].findings
        default:
            verdict = .stepwise(steps.map(\.destinationName))
            let losses = StepwiseLosses(from: old, to: new, through: steps).findings
            let stepFindings =
                (steps.first?.findings ?? []) + steps.dropFirst().flatMap(\.findings).map(\.unconditional)
            // Each loss along the path is also a removal in one of the steps; report it once.
            findings =
                Self.reasons(from: old, to: new).map(\.asNote) + losses
                + stepFindings.filter { finding in
                    !finding.isRemoval
                        || !losses.contains { $0.entity == finding.entity && $0.property == finding.property }
                }
        }
    }

    /// Returns the reasons that prevent inference; empty if a mapping can be inferred.
    private static func reasons(from old: ManagedObjectModel, to new: ManagedObjectModel) -> [MigrationFinding] {
        do {
            _ = try MappingModel.inferred(from: old, to: new)
            return []
        } catch {
            return (error as? MappingInferenceError)?.reasons ?? []
        }
    }

    /// Returns the entities whose hashes differ, sorted by name.
    package static func difference(_ old: [String: [UInt8]], _ new: [String: [UInt8]]) -> [DifferingEntity] {
        Set(old.keys).union(new.keys).filter { old[$0] != new[$0] }.sorted { $0.precedes($1) }.map {
            DifferingEntity(name: $0, oldHash: old[$0], newHash: new[$0])
        }
    }
}

extension MigrationStep {
    fileprivate var verdict: MigrationCheck.Verdict {
        switch method {
        case .inferred(let mapping): .inferred(mapping)
        case .custom(let mapping): .mapped(mapping)
        }
    }
}

extension MigrationFinding {
    fileprivate init(_ error: MigrationError) {
        self.init(.error, code: error.code, entity: nil, error.message, remedy: error.remedy)
    }

    fileprivate static let missingSourceModel = MigrationFinding(
        .error, code: CoreDataError.missingSourceModel, entity: nil,
        "the store carries no model, and no version of the model has its hashes",
        remedy: "add the version that the store was made with to the model")

    /// This finding as unconditional: a later step's requirements can't be checked against the store's current content.
    fileprivate var unconditional: MigrationFinding {
        var finding = self
        finding.isConditional = false
        return finding
    }

    /// This finding as a note: several steps avoid what prevents a migration in one step.
    fileprivate var asNote: MigrationFinding {
        var note = self
        note.severity = .note
        return note
    }
}

extension MigrationCheck {
    /// Returns this check for one store whose obstacles are known. Obstacles refuse the migration. They and the
    /// warnings replace the conditional warnings.
    package func resolvingConditions(
        with obstacles: [MigrationFinding], warnings: [MigrationFinding] = []
    ) -> MigrationCheck {
        let resolved = obstacles + warnings + findings.filter { !$0.isConditional }
        let verdict = obstacles.first.map { Verdict.refused(code: $0.code ?? CoreDataError.migration) } ?? verdict
        return MigrationCheck(verdict, findings: resolved, from: self)
    }

    /// Returns this check, refused for a reason outside the models. A compatible verdict stays.
    package func refused(with error: MigrationError) -> MigrationCheck {
        guard verdict != .compatible else { return self }
        return MigrationCheck(.refused(code: error.code), findings: [MigrationFinding(error)], from: self)
    }

    /// Returns this check with the content that the steps remove from one store, in place of findings about what
    /// may be removed.
    package func replacingRemovals(with losses: RemovedContent) -> MigrationCheck {
        guard !isRefused else { return self }
        let counted = losses.all.map { loss in
            MigrationFinding(
                .warning, entity: loss.entity, property: loss.property, "\(loss.reason): \(loss.words)",
                remedy: MigrationReview.whereMeant + "; the store is kept in the archive as it was")
        }
        var check = MigrationCheck(
            verdict, findings: counted + findings.filter { !$0.isRemoval && !$0.isCounted },
            from: self)
        check.losses = losses
        return check
    }

    package var isRefused: Bool { if case .refused = verdict { true } else { false } }

    /// Returns true if both checks have the same consequences for a store.
    package func isSame(as other: MigrationCheck) -> Bool {
        verdict == other.verdict && steps.isSame(as: other.steps) && mappingNames == other.mappingNames
    }

    /// Returns this check with a note for each attribute whose external files are missing, since a migration can't
    /// restore them.
    package func addingNotes(for missing: [ExternalReferences.Missing]) -> MigrationCheck {
        let notes = missing.map { attribute in
            let rest = attribute.files > 1 ? " and \(Counted(attribute.files - 1, "other"))" : ""
            return MigrationFinding(
                .note, entity: attribute.entity, property: attribute.attribute,
                "the store names external files that are not there: \(attribute.first)\(rest)",
                remedy: ExternalReferences.Missing.remedy)
        }
        return MigrationCheck(verdict, findings: findings + notes, from: self)
    }

    private init(_ verdict: Verdict, findings: [MigrationFinding], from check: MigrationCheck) {
        self.verdict = verdict
        self.findings = findings
        mappingNames = check.mappingNames
        steps = check.steps
        losses = check.losses
        differingEntities = check.differingEntities
    }
}
