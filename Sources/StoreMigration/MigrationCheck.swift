import ManagedObjectModel

/// Whether and how stores of one version can be opened with another: the answer to `groupstore model check`.
public struct MigrationCheck: Sendable {
    public enum Verdict: Equatable, Sendable {
        /// Every entity's hash is the same: the store is opened as it is.
        case compatible
        /// By an inferred mapping, in one step.
        case inferred(MappingModel)
        /// By inferred mappings from version to version: the versions on the way, the last one the newer model's.
        case stepwise([String])
        /// With Core Data's error code.
        case refused(code: Int)
    }

    public let verdict: Verdict
    /// Why it is refused, and what to mind where it is not.
    public let findings: [MigrationFinding]
    /// Entities of the older model whose hash is another one in the newer, or that are not there, by name.
    public let differingEntities: [DifferingEntity]

    public struct DifferingEntity: Equatable, Sendable {
        public let name: String
        /// Nil when the model has no such entity.
        public let oldHash: [UInt8]?
        public let newHash: [UInt8]?
    }

    /// `old` is nil when only a store's hashes are known. `intermediates` are versions that lie between the two, for a
    /// migration in steps, in order.
    public init(
        from old: ManagedObjectModel?, hashes: [String: [UInt8]], to new: ManagedObjectModel, named newName: String,
        intermediates: [(name: String, model: ManagedObjectModel)] = []
    ) {
        differingEntities = Self.difference(hashes, new.entityVersionHashesByName)
        guard !differingEntities.isEmpty else {
            (verdict, findings) = (.compatible, [])
            return
        }
        guard let old else {
            (verdict, findings) = (.refused(code: CoreDataError.missingSourceModel), [.missingSourceModel])
            return
        }
        do {
            verdict = .inferred(try MappingModel.inferred(from: old, to: new))
            findings = MigrationReview(old, new).findings
        } catch {
            let reasons = (error as? MappingInferenceError)?.reasons ?? []
            if let path = MigrationPath.shortest(from: old, to: (newName, new), through: intermediates) {
                verdict = .stepwise(path.versions.map(\.name))
                findings = reasons.map(\.asNote) + path.findings.map(\.withoutRequirement)
            } else {
                verdict = .refused(code: CoreDataError.missingMappingModel)
                findings = reasons + MigrationReview(old, new).findings.filter { $0.severity != .note }
            }
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
    fileprivate static let missingSourceModel = MigrationFinding(
        .error, code: CoreDataError.missingSourceModel, entity: nil,
        "the store carries no model, and no version of the model has its hashes",
        remedy: "add the version that the store was made with to the model")

    /// What a later step requires can't be looked up in the store as it is now.
    fileprivate var withoutRequirement: MigrationFinding {
        var finding = self
        finding.requirement = nil
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
    /// The same check of one store, whose objects are known: `count` tells how many of them are without a value, or nil
    /// where that can't be told. A migration that would fail on them is refused; one that can't is not warned of.
    package func deciding(_ count: (ValueRequirement) throws -> Int64?) rethrows -> MigrationCheck {
        var decided: [MigrationFinding] = []
        for var finding in findings {
            if let requirement = finding.requirement, let missing = try count(requirement) {
                guard missing > 0 else { continue }
                finding.severity = .error
                finding.message += "; here \(missing) have none"
            }
            decided.append(finding)
        }
        var verdict = verdict
        if case .inferred = verdict, decided.contains(where: { $0.severity == .error }) {
            verdict = .refused(code: CoreDataError.migration)
        }
        return MigrationCheck(verdict: verdict, findings: decided, differingEntities: differingEntities)
    }

    private init(verdict: Verdict, findings: [MigrationFinding], differingEntities: [DifferingEntity]) {
        self.verdict = verdict
        self.findings = findings
        self.differingEntities = differingEntities
    }
}

/// The fewest inferred steps from one model to another through versions in between.
enum MigrationPath {
    typealias Version = (name: String, model: ManagedObjectModel)

    /// Nil when there is none.
    static func shortest(
        from old: ManagedObjectModel, to new: Version, through intermediates: [Version]
    ) -> (versions: [Version], findings: [MigrationFinding])? {
        // A breadth-first search: each version is reached first by the fewest steps.
        var waiting: [(version: Version, path: [Version], findings: [MigrationFinding])] = [(("", old), [], [])]
        var left = intermediates
        while !waiting.isEmpty {
            let (version, path, findings) = waiting.removeFirst()
            for next in [new] + left where (try? MappingModel.inferred(from: version.model, to: next.model)) != nil {
                let found = findings + MigrationReview(version.model, next.model).findings
                if next.name == new.name { return (path + [next], found) }
                left.removeAll { $0.name == next.name }
                waiting.append((next, path + [next], found))
            }
        }
        return nil
    }
}
