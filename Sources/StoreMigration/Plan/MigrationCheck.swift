import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Whether and how stores of one version can be opened with another: the answer to `groupstore model check`.
public struct MigrationCheck: Sendable {
    public enum Verdict: Equatable, Sendable {
        /// Every entity's hash is the same: the store is opened as it is.
        case compatible
        /// By an inferred mapping, in one step.
        case inferred(MappingModel)
        /// By a mapping model, in one step.
        case mapped(MappingModel)
        /// From version to version, by inferred mappings and mapping models: the versions on the way, the last one the
        /// newer model's.
        case stepwise([String])
        /// With Core Data's error code.
        case refused(code: Int)
    }

    public let verdict: Verdict
    /// Why it is refused, and what to mind where it is not.
    public let findings: [MigrationFinding]
    /// For each step, the name of the mapping model that is used; nil where the mapping is inferred.
    public let mappingNames: [String?]
    /// In the order in which they are run.
    package let steps: [MigrationStep]
    /// What the steps remove from a store, where one was looked at.
    package private(set) var losses = RemovedContent.none
    /// Entities of the older model whose hash is another one in the newer, or that are not there, by name.
    public let differingEntities: [DifferingEntity]

    public struct DifferingEntity: Equatable, Sendable {
        public let name: String
        /// Nil when the model has no such entity.
        public let oldHash: [UInt8]?
        public let newHash: [UInt8]?
    }

    /// `old` is nil when only a store's hashes are known, and `oldName` when its version isn't. `intermediates` are
    /// versions that lie between the two, for a migration in steps, in order; `mappings` the mapping models that there
    /// are: one that fits goes before an inferred mapping, as in Core Data.
    public init(
        from old: ManagedObjectModel?, sourceName oldName: String? = nil, hashes: [String: [UInt8]],
        to new: ManagedObjectModel, named newName: String,
        intermediates: [(name: String, model: ManagedObjectModel)] = [], mappings: [MappingModelFile] = []
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
        do { try StoreLayout(new).check() } catch {
            verdict = .refused(code: CoreDataError.migration)
            (findings, mappingNames, steps) = ([MigrationFinding(fault: error)], [], [])
            return
        }
        let path: [MigrationPath.Step]?
        do {
            path = try MigrationPath.shortest(
                from: (oldName, old), to: (newName, new), through: intermediates, mappings: mappings)
        } catch {
            verdict = .refused(code: error.code)
            (findings, mappingNames, steps) = ([MigrationFinding(error)], [], [])
            return
        }
        let reasons = Self.reasons(from: old, to: new)
        switch path?.count {
        case nil:
            verdict = .refused(code: CoreDataError.missingMappingModel)
            findings = reasons + MigrationReview(old, new).findings.filter { $0.severity != .note }
        case 1:
            verdict = path?[0].verdict ?? .compatible
            findings = path?[0].findings ?? []
        default:
            verdict = .stepwise(path?.map(\.name) ?? [])
            let steps = path ?? []
            let losses = StepwiseLosses(from: old, to: new, through: steps).findings
            let ofSteps =
                (steps.first?.findings ?? []) + steps.dropFirst().flatMap(\.findings).map(\.unconditional)
            // What is lost on the way is removed by one of the steps: told of once.
            findings =
                reasons.map(\.asNote) + losses
                + ofSteps.filter { finding in
                    !finding.isRemoval
                        || !losses.contains { $0.entity == finding.entity && $0.property == finding.property }
                }
        }
        var source = old
        steps = (path ?? []).map { step in
            defer { source = step.model }
            return step.migrationStep(from: source)
        }
        mappingNames = path?.map(\.mappingName) ?? []
    }

    /// Why no mapping can be inferred.
    private static func reasons(from old: ManagedObjectModel, to new: ManagedObjectModel) -> [MigrationFinding] {
        do {
            _ = try MappingModel.inferred(from: old, to: new)
            return []
        } catch {
            return (error as? MappingInferenceError)?.reasons ?? []
        }
    }

    /// What differs between a store's hashes and a model's.
    package static func difference(_ old: [String: [UInt8]], _ new: [String: [UInt8]]) -> [DifferingEntity] {
        Set(old.keys).union(new.keys).filter { old[$0] != new[$0] }.sorted { $0.precedes($1) }.map {
            DifferingEntity(name: $0, oldHash: old[$0], newHash: new[$0])
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

    /// What a later step requires can't be looked up in the store as it is now.
    fileprivate var unconditional: MigrationFinding {
        var finding = self
        finding.isConditional = false
        return finding
    }

    /// What refuses a migration in one step is worth a note where several steps do it.
    fileprivate var asNote: MigrationFinding {
        var note = self
        note.severity = .note
        return note
    }
}

extension MigrationCheck {
    /// The same check of one store, whose content is known: a migration that would fail on it is refused; one that can't is
    /// not warned of.
    package func deciding(_ obstacles: [MigrationFinding]) -> MigrationCheck {
        let decided = obstacles + findings.filter { !$0.isConditional }
        let verdict = obstacles.first.map { Verdict.refused(code: $0.code ?? CoreDataError.migration) } ?? verdict
        return MigrationCheck(verdict, decided, self)
    }

    /// The same, refused for a reason that has nothing to do with the models. A store that is opened as it is stays so.
    package func refusing(_ error: MigrationError) -> MigrationCheck {
        guard verdict != .compatible else { return self }
        return MigrationCheck(.refused(code: error.code), [MigrationFinding(error)], self)
    }

    /// The same, with what the steps remove from the store instead of what they would remove from any.
    package func counting(_ losses: RemovedContent) -> MigrationCheck {
        guard !isRefused else { return self }
        let counted = losses.all.map { loss in
            MigrationFinding(
                .warning, entity: loss.entity, property: loss.property, "\(loss.reason): \(loss.words)",
                remedy: MigrationReview.whereMeant + "; the store is kept in the archive as it was")
        }
        var check = MigrationCheck(verdict, counted + findings.filter { !$0.isRemoval }, self)
        check.losses = losses
        return check
    }

    package var isRefused: Bool { if case .refused = verdict { true } else { false } }

    /// Whether it says the same of a store.
    package func isSame(as other: MigrationCheck) -> Bool {
        verdict == other.verdict && steps.isSame(as: other.steps) && mappingNames == other.mappingNames
    }

    /// The same, with a note for each attribute of which files are missing: a migration can't bring them back.
    package func noting(_ missing: [ExternalReferences.Missing]) -> MigrationCheck {
        let notes = missing.map { one in
            let rest = one.files > 1 ? " and \(one.files - 1) others" : ""
            return MigrationFinding(
                .note, entity: one.entity, property: one.attribute,
                "the store names external files that are not there: \(one.first)\(rest)",
                remedy: ExternalReferences.Missing.remedy)
        }
        return MigrationCheck(verdict, findings + notes, self)
    }

    private init(_ verdict: Verdict, _ findings: [MigrationFinding], _ check: MigrationCheck) {
        self.verdict = verdict
        self.findings = findings
        mappingNames = check.mappingNames
        steps = check.steps
        losses = check.losses
        differingEntities = check.differingEntities
    }
}
