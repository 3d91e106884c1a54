import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Finds the fewest steps from one model to another through intermediate versions. Each step uses a mapping model if
/// one fits, else an inferred mapping.
enum MigrationPath {
    typealias Version = (name: String, model: ManagedObjectModel)

    struct Step {
        /// The name of the version that the step leads to.
        let name: String
        let model: ManagedObjectModel
        let method: MigrationStep.Method
        /// The mapping models' names; nil if the mapping is inferred.
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
            step.remarks = findings.filter(\.isReportedAtRun).map { "\($0.sentence) (\($0.remedy))" }
            return step
        }
    }

    /// Returns the shortest path; nil if there is none. Throws `MigrationError` if mapping models for one step
    /// conflict.
    ///
    /// If possible, no inferred step skips versions that a mapping model connects: its author meant objects to be
    /// migrated by it, and inference would drop values.
    static func shortest(
        from old: KnownVersion, to new: Version, through intermediates: [Version], mappings: [MappingModelFile] = []
    ) throws(MigrationError) -> [Step]? {
        let versions = [old] + (intermediates + [new]).map { (name: $0.name, model: $0.model) }
        let mappedPairs = mappings.isEmpty ? [] : mappedPairs(versions, mappings)
        if let path = try shortest(through: versions, mappings: mappings, respecting: mappedPairs) { return path }
        return mappedPairs.isEmpty ? nil : try shortest(through: versions, mappings: mappings, respecting: [])
    }

    typealias KnownVersion = (name: String?, model: ManagedObjectModel)

    /// Returns the index pairs of the versions that a mapping model connects.
    private static func mappedPairs(
        _ versions: [KnownVersion], _ mappings: [MappingModelFile]
    ) -> [(from: Int, to: Int)] {
        versions.indices.flatMap { from in
            versions.indices.dropFirst(from + 1).compactMap { to in
                guard versions[from].model.entityVersionHashesByName != versions[to].model.entityVersionHashesByName,
                    mappings.contains(where: { $0.fits(from: versions[from], to: versions[to]) })
                else { return nil }
                return (from, to)
            }
        }
    }

    /// True if a step from one version to another needs a mapping model between the two: an inferred one would skip it.
    private static func isBlocked(_ index: Int, _ next: Int, by mappedPairs: [(from: Int, to: Int)]) -> Bool {
        mappedPairs.contains { index <= $0.from && $0.to <= next }
            && !mappedPairs.contains { $0.from == index && $0.to == next }
    }

    /// Returns the number of steps to the last version that are needed at least, for each version; nil if mapping
    /// models block every way.
    private static func leastSteps(_ count: Int, respecting mappedPairs: [(from: Int, to: Int)]) -> [Int?] {
        var least = [Int?](repeating: nil, count: count)
        least[count - 1] = 0
        for index in (0..<count - 1).reversed() {
            least[index] = (index + 1..<count).compactMap { next in
                isBlocked(index, next, by: mappedPairs) ? nil : least[next].map { $0 + 1 }
            }.min()
        }
        return least
    }

    /// Returns the path that the breadth-first search would find, if it has no more steps than mapping models alone
    /// make necessary. It tries only steps that can be part of such a path: to infer a mapping from each version to
    /// each other one takes minutes for a hundred versions.
    private static func direct(
        through versions: [KnownVersion], mappings: [MappingModelFile], respecting mappedPairs: [(from: Int, to: Int)]
    ) throws(MigrationError) -> [Step]? {
        let least = leastSteps(versions.count, respecting: mappedPairs)
        var isUseless = Set<Int>()
        func path(from index: Int) throws(MigrationError) -> [Step]? {
            guard let steps = least[index], !isUseless.contains(index) else { return nil }
            if steps == 0 { return [] }
            for next in index + 1..<versions.count
            where least[next] == steps - 1 && !isBlocked(index, next, by: mappedPairs) {
                guard let step = try step(from: versions[index], to: versions[next], mappings),
                    let rest = try path(from: next)
                else { continue }
                return [step] + rest
            }
            isUseless.insert(index)
            return nil
        }
        return try path(from: 0)
    }

    /// Searches breadth-first, so that each version is first reached by the fewest steps.
    private static func shortest(
        through versions: [KnownVersion], mappings: [MappingModelFile], respecting mappedPairs: [(from: Int, to: Int)]
    ) throws(MigrationError) -> [Step]? {
        if let path = try direct(through: versions, mappings: mappings, respecting: mappedPairs) { return path }
        var queue: [(index: Int, path: [Step])] = [(0, [])]
        // The last version is tried first, since it is the longest possible step.
        var unreached = Array(versions.indices.dropFirst())
        while !queue.isEmpty {
            let (index, path) = queue.removeFirst()
            for next in [versions.count - 1] + unreached.dropLast() {
                if isBlocked(index, next, by: mappedPairs) { continue }
                guard let step = try step(from: versions[index], to: versions[next], mappings) else { continue }
                if next == versions.count - 1 { return path + [step] }
                unreached.removeAll { $0 == next }
                queue.append((next, path + [step]))
            }
        }
        return nil
    }

    /// Returns nil if no mapping model fits and no mapping can be inferred.
    private static func step(
        from old: KnownVersion, to new: KnownVersion, _ mappings: [MappingModelFile]
    ) throws(MigrationError) -> Step? {
        // A store can't tell versions with the same hashes apart, and their renaming identifiers are unrelated.
        guard old.model.entityVersionHashesByName != new.model.entityVersionHashesByName else { return nil }
        let name = new.name ?? ""
        if let mapping = try StepMapping(from: old, to: new, mappings) {
            let review = MappingReview(mapping.resolved, from: old.model, to: new.model)
            let findings = review.findings + mapping.findings
            return Step(
                name: name, model: new.model, method: .custom(mapping.resolved), mappingName: mapping.name,
                findings: findings)
        }
        guard let mapping = try? MappingModel.inferred(from: old.model, to: new.model) else { return nil }
        return Step(
            name: name, model: new.model, method: .inferred(mapping), mappingName: nil,
            findings: MigrationReview(old.model, new.model).findings)
    }
}

extension MappingModel {
    /// Returns warnings and notes for a migration between the two models. Findings of severity
    /// `MigrationFinding.Severity.error` are reasons that prevent it.
    ///
    /// - Throws: `MappingModelError` if the mapping model doesn't fit the two models.
    public func review(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) throws(MappingModelError) -> [MigrationFinding] {
        MappingReview(try resolved(from: source, to: destination), from: source, to: destination).findings
    }
}

/// Finds possibly unintended effects of a mapping model, and its requirements.
struct MappingReview {
    private(set) var findings: [MigrationFinding] = []

    /// Reviews a resolved mapping.
    init(_ mapping: MappingModel, from source: ManagedObjectModel, to destination: ManagedObjectModel) {
        do { try MappingPlan(mapping, from: StoreLayout(source), to: StoreLayout(destination)).check() } catch {
            findings.append(
                MigrationFinding(
                    .error, code: CoreDataError.migration, entity: nil,
                    (error.element.map { $0 + ": " } ?? "") + error.message, remedy: error.remedy))
        }
        for entityMapping in mapping.entityMappings {
            if let policy = entityMapping.entityMigrationPolicyClassName { addPolicyNote(policy, entityMapping) }
            findings += ConstantNames(entityMapping, source).findings
            for attribute in Self.unsetMandatoryAttributes(entityMapping, destination) {
                findings.append(
                    MigrationFinding(
                        .warning, code: CoreDataError.missingMandatoryProperty,
                        entity: entityMapping.destinationEntityName, property: attribute,
                        "\(entityMapping.name) gives the mandatory attribute no value, and it has no default",
                        remedy: "map a value to it, give it a default, or make it optional"))
            }
        }
        let mapped = Set(mapping.entityMappings.compactMap(\.sourceEntityName))
        for entity in source.entities where !entity.isAbstract && !mapped.contains(entity.name) {
            var finding = MigrationFinding(
                .warning, entity: entity.name, "no entity mapping covers it: the entity's objects are removed",
                remedy: "none needed if this is intended")
            finding.isRemoval = true
            findings.append(finding)
        }
    }

    private mutating func addPolicyNote(_ name: String, _ mapping: EntityMapping) {
        findings.append(
            MigrationFinding(
                .note, entity: mapping.destinationEntityName ?? mapping.sourceEntityName,
                "\(mapping.name) needs the migration policy “\(name)”, which only a program that registers it has",
                remedy: "migrate in the app itself"))
    }

    /// Returns the mandatory attributes without a value; none for a mapping with a policy, which may set them.
    private static func unsetMandatoryAttributes(_ mapping: EntityMapping, _ model: ManagedObjectModel) -> [String] {
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
