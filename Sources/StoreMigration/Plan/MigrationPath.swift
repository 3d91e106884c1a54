import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The fewest steps from one model to another through versions in between, each by a mapping model where one fits, else
/// by an inferred mapping.
enum MigrationPath {
    typealias Version = (name: String, model: ManagedObjectModel)

    struct Step {
        /// The version that it leads to.
        let name: String
        let model: ManagedObjectModel
        let method: MigrationStep.Method
        /// Nil where the mapping is inferred.
        let mappingName: String?
        let findings: [MigrationFinding]

        var verdict: MigrationCheck.Verdict {
            switch method {
            case .inferred(let mapping): .inferred(mapping)
            case .custom(let mapping): .mapped(mapping)
            }
        }

        func migrationStep(from source: ManagedObjectModel) -> MigrationStep {
            var step = MigrationStep(from: source, to: model, named: name, by: method)
            step.mappingName = mappingName
            step.remarks = findings.filter(\.isTold).map { "\($0.sentence) (\($0.remedy))" }
            return step
        }
    }

    /// Nil when there is none. Throws `MigrationError` where several mapping models say different things of one step. No
    /// step is inferred over versions between which a mapping model leads, where that can be
    /// helped: who wrote it meant its objects to be carried over as it says, and inference would let values go.
    static func shortest(
        from old: KnownVersion, to new: Version, through intermediates: [Version], mappings: [MappingModelFile] = []
    ) throws(MigrationError) -> [Step]? {
        let versions = [old] + (intermediates + [new]).map { (name: $0.name, model: $0.model) }
        let led = mappings.isEmpty ? [] : ledPairs(versions, mappings)
        if let path = try shortest(versions, mappings, led) { return path }
        return led.isEmpty ? nil : try shortest(versions, mappings, [])
    }

    typealias KnownVersion = (name: String?, model: ManagedObjectModel)

    /// The pairs of versions, by their places, that a mapping model leads from and to.
    private static func ledPairs(_ versions: [KnownVersion], _ mappings: [MappingModelFile]) -> [(from: Int, to: Int)] {
        versions.indices.flatMap { from in
            versions.indices.dropFirst(from + 1).compactMap { to in
                guard versions[from].model.entityVersionHashesByName != versions[to].model.entityVersionHashesByName,
                    mappings.contains(where: { $0.fits(from: versions[from], to: versions[to]) })
                else { return nil }
                return (from, to)
            }
        }
    }

    /// A breadth-first search: each version is reached first by the fewest steps.
    private static func shortest(
        _ versions: [KnownVersion], _ mappings: [MappingModelFile], _ led: [(from: Int, to: Int)]
    ) throws(MigrationError) -> [Step]? {
        var waiting: [(place: Int, path: [Step])] = [(0, [])]
        // The last one first: the longest step that there is.
        var left = Array(versions.indices.dropFirst())
        while !waiting.isEmpty {
            let (place, path) = waiting.removeFirst()
            for next in [versions.count - 1] + left.dropLast() {
                guard let step = try step(from: versions[place], to: versions[next], mappings) else { continue }
                let skips = led.contains { place <= $0.from && $0.to <= next }
                if step.mappingName == nil, skips { continue }
                if next == versions.count - 1 { return path + [step] }
                left.removeAll { $0 == next }
                waiting.append((next, path + [step]))
            }
        }
        return nil
    }

    /// Nil when neither a mapping model fits nor a mapping can be inferred.
    private static func step(
        from old: KnownVersion, to new: KnownVersion, _ mappings: [MappingModelFile]
    ) throws(MigrationError) -> Step? {
        // Versions with the same hashes are one to a store: renaming identifiers of the one say nothing of the other.
        guard old.model.entityVersionHashesByName != new.model.entityVersionHashesByName else { return nil }
        let name = new.name ?? ""
        if let found = try StepMapping(from: old, to: new, mappings) {
            let findings = MappingReview(found.resolved, old.model, new.model).findings + found.findings
            return Step(
                name: name, model: new.model, method: .custom(found.resolved), mappingName: found.name,
                findings: findings)
        }
        guard let mapping = try? MappingModel.inferred(from: old.model, to: new.model) else { return nil }
        return Step(
            name: name, model: new.model, method: .inferred(mapping), mappingName: nil,
            findings: MigrationReview(old.model, new.model).findings)
    }
}

extension MappingModel {
    /// What is to be minded when it is run from the one model to the other; errors are why it can't be. Throws
    /// `MappingModelError` where it doesn't lead there.
    public func review(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) throws(MappingModelError) -> [MigrationFinding] {
        MappingReview(try resolved(from: source, to: destination), source, destination).findings
    }
}

/// What a mapping model does that its author may not have meant, and what it needs to be run.
struct MappingReview {
    private(set) var findings: [MigrationFinding] = []

    /// `mapping` is resolved.
    init(_ mapping: MappingModel, _ source: ManagedObjectModel, _ destination: ManagedObjectModel) {
        do { try MappingPlan(mapping, from: StoreLayout(source), to: StoreLayout(destination)).check() } catch {
            findings.append(
                MigrationFinding(
                    .error, code: CoreDataError.migration, entity: nil,
                    (error.element.map { $0 + ": " } ?? "") + error.message, remedy: error.remedy))
        }
        for one in mapping.entityMappings {
            if let policy = one.entityMigrationPolicyClassName { notePolicy(policy, one) }
            findings += ConstantNames(one, source).findings
            for attribute in Self.missing(one, destination) {
                findings.append(
                    MigrationFinding(
                        .warning, code: CoreDataError.missingMandatoryProperty, entity: one.destinationEntityName,
                        property: attribute,
                        "\(one.name) gives the mandatory attribute no value, and it has no default",
                        remedy: "map a value to it, give it a default, or make it optional"))
            }
        }
        let mapped = Set(mapping.entityMappings.compactMap(\.sourceEntityName))
        for entity in source.entities where !entity.isAbstract && !mapped.contains(entity.name) {
            var finding = MigrationFinding(
                .warning, entity: entity.name, "no entity mapping has it: the entity's objects are removed",
                remedy: "none needed where that is meant")
            finding.isRemoval = true
            findings.append(finding)
        }
    }

    private mutating func notePolicy(_ name: String, _ mapping: EntityMapping) {
        findings.append(
            MigrationFinding(
                .note, entity: mapping.destinationEntityName ?? mapping.sourceEntityName,
                "\(mapping.name) needs the migration policy “\(name)”, which only a program that registers it has",
                remedy: "migrate with the app's own program"))
    }

    /// A policy may set what the mapping doesn't.
    private static func missing(_ mapping: EntityMapping, _ model: ManagedObjectModel) -> [String] {
        guard mapping.entityMigrationPolicyClassName == nil, mapping.sourceEntityName != nil,
            let entity = mapping.destinationEntityName.flatMap(model.entity(named:))
        else { return [] }
        let valued = Set(mapping.attributeMappings.filter { $0.valueExpression != nil }.map(\.name))
        return model.properties(of: entity).compactMap { property in
            guard case .attribute(let attribute) = property, !attribute.isOptional, !attribute.isTransient,
                attribute.defaultValue == nil, attribute.derivation == nil, !valued.contains(attribute.name)
            else { return nil }
            return attribute.name
        }
    }
}
