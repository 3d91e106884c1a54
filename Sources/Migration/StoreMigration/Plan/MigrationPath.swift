import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Finds the fewest steps from one model to another through intermediate versions. Each step uses a mapping model if
/// one fits, else an inferred mapping.
enum MigrationPath {
    typealias Version = (name: String, model: ManagedObjectModel)

    /// Returns the shortest path; nil if there is none. Throws `MigrationError` if mapping models for one step
    /// conflict.
    ///
    /// If possible, no inferred step skips versions that a mapping model connects: its author meant objects to be
    /// migrated by it, and inference would drop values.
    static func shortest(
        from old: KnownVersion, to new: Version, through intermediates: [Version], using cache: MigrationStepCache
    ) throws(MigrationError) -> [MigrationStep]? {
        let versions = [old] + (intermediates + [new]).map { (name: $0.name, model: $0.model) }
        let mappedPairs = cache.hasMappings ? mappedPairs(versions, cache) : []
        if let path = try shortest(through: versions, using: cache, respecting: mappedPairs) { return path }
        return mappedPairs.isEmpty ? nil : try shortest(through: versions, using: cache, respecting: [])
    }

    typealias KnownVersion = (name: String?, model: ManagedObjectModel)

    /// Returns the index pairs of the versions that a mapping model connects.
    private static func mappedPairs(
        _ versions: [KnownVersion], _ cache: MigrationStepCache
    ) -> [(from: Int, to: Int)] {
        versions.indices.flatMap { from in
            versions.indices.dropFirst(from + 1).compactMap { to in
                cache.isMapped(from: versions[from], to: versions[to]) ? (from, to) : nil
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

    /// Returns the indices of the path that the breadth-first search would find, if it has no more steps than mapping
    /// models alone make necessary. It tries only steps that can be part of such a path: to infer a mapping from each
    /// version to each other one takes minutes for a hundred versions.
    private static func direct(
        through versions: [KnownVersion], using cache: MigrationStepCache,
        respecting mappedPairs: [(from: Int, to: Int)]
    ) throws(MigrationError) -> [Int]? {
        let least = leastSteps(versions.count, respecting: mappedPairs)
        var isUseless = Set<Int>()
        func path(from index: Int) throws(MigrationError) -> [Int]? {
            guard let steps = least[index], !isUseless.contains(index) else { return nil }
            if steps == 0 { return [index] }
            for next in index + 1..<versions.count
            where least[next] == steps - 1 && !isBlocked(index, next, by: mappedPairs) {
                guard try cache.isPossible(from: versions[index], to: versions[next]),
                    let rest = try path(from: next)
                else { continue }
                return [index] + rest
            }
            isUseless.insert(index)
            return nil
        }
        return try path(from: 0)
    }

    private static func shortest(
        through versions: [KnownVersion], using cache: MigrationStepCache,
        respecting mappedPairs: [(from: Int, to: Int)]
    ) throws(MigrationError) -> [MigrationStep]? {
        var found = try direct(through: versions, using: cache, respecting: mappedPairs)
        if found == nil { found = try searched(through: versions, using: cache, respecting: mappedPairs) }
        guard let found else { return nil }
        var path: [MigrationStep] = []
        for (from, to) in zip(found, found.dropFirst()) {
            guard let step = try cache.step(from: versions[from], to: versions[to]) else { return nil }
            path.append(step)
        }
        return path
    }

    /// Searches breadth-first from the last version back, so that the steps to it that all ways share are found out
    /// first. Returns the indices of the versions on the way with the fewest steps; of several, that through the oldest
    /// versions.
    private static func searched(
        through versions: [KnownVersion], using cache: MigrationStepCache,
        respecting mappedPairs: [(from: Int, to: Int)]
    ) throws(MigrationError) -> [Int]? {
        var distances = [Int?](repeating: nil, count: versions.count)
        var frontier = [versions.count - 1]
        distances[versions.count - 1] = 0
        func isStep(_ index: Int, _ next: Int) throws(MigrationError) -> Bool {
            guard !isBlocked(index, next, by: mappedPairs) else { return false }
            return try cache.isPossible(from: versions[index], to: versions[next])
        }
        for distance in 1... {
            guard distances[0] == nil, !frontier.isEmpty else { break }
            var reached: [Int] = []
            for index in versions.indices where distances[index] == nil {
                for next in frontier {
                    guard try isStep(index, next) else { continue }
                    reached.append(index)
                    break
                }
            }
            for index in reached { distances[index] = distance }
            frontier = reached
        }
        guard var remaining = distances[0] else { return nil }
        var path = [0]
        while remaining > 0 {
            remaining -= 1
            var following: Int?
            for next in versions.indices where following == nil && distances[next] == remaining {
                if try isStep(path[path.count - 1], next) { following = next }
            }
            guard let following else { return nil }
            path.append(following)
        }
        return path
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
