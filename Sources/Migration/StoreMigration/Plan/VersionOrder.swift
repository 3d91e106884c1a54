import ManagedObjectModels
import MappingModels

/// The order of a model's versions, which determines the versions that a store may be migrated to and through.
///
/// A model only marks its current version, which counts as the newest, whatever its name. A version with the current
/// one's name and a higher number (`Notes 3` beside `Notes 2`), or with a number appended (`Notes_v2` beside `Notes`),
/// is newer still: it is under development. If a mapping model leads from one version to another, the latter is newer.
/// All other versions are ordered by name and number.
package struct VersionOrder: Sendable {
    /// The versions from the oldest to the newest.
    package let versions: [ModelVersion]
    private let mapped: Set<MappedPair>
    /// The places of a merged version's parts in the orders of their own bundles, by the version's name; empty for a
    /// bundle that isn't merged.
    private let places: [String: [Int]]

    /// Two versions that a mapping model connects.
    private struct MappedPair: Hashable {
        let from: String
        let to: String
    }

    package init(_ bundle: ModelBundle, mappings: [MappingModelFile] = []) {
        guard bundle.parts.isEmpty else {
            places = Self.places(in: bundle, mappings)
            mapped = Self.mappedPairs(among: bundle.versions, mappings)
            versions = Self.sorted(bundle, places)
            return
        }
        places = [:]
        let current = bundle.current
        let others = bundle.versions.filter { $0.name != current.name }
        let isLater = { (version: ModelVersion) in NumberedName(version.name).follows(NumberedName(current.name)) }
        mapped = Self.mappedPairs(among: bundle.versions, mappings)
        versions = Self.sorted(others.filter { !isLater($0) }, by: mapped) + [current] + others.filter(isLater)
    }

    /// Returns true if `version` is older than `target`, or if a mapping model leads there regardless.
    package func leads(from version: ModelVersion, to target: ModelVersion) -> Bool {
        guard let start = index(of: version), let end = index(of: target) else { return false }
        guard start >= end || !precedesInAllParts(version, target) else { return true }
        return mapped.contains(MappedPair(from: version.name, to: target.name))
    }

    /// Returns the versions between the two, the oldest first.
    package func between(_ version: ModelVersion, _ target: ModelVersion) -> [ModelVersion] {
        guard let start = index(of: version), let end = index(of: target), start < end else { return [] }
        return versions[start + 1..<end].filter {
            precedesInAllParts(version, $0) && precedesInAllParts($0, target)
        }
    }

    /// True if no part of `version` is newer than that of `other`, or neither is merged.
    private func precedesInAllParts(_ version: ModelVersion, _ other: ModelVersion) -> Bool {
        guard let first = places[version.name], let second = places[other.name] else { return true }
        return zip(first, second).allSatisfy { $0 <= $1 }
    }

    private static func places(in bundle: ModelBundle, _ mappings: [MappingModelFile]) -> [String: [Int]] {
        let orders = bundle.parts.map { VersionOrder($0, mappings: mappings).versions.map(\.name) }
        return Dictionary(
            bundle.versions.map { version in
                (version.name, zip(version.components, orders).map { $1.firstIndex(of: $0.name) ?? 0 })
            }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns merged versions in an order in which each follows those whose parts are all older.
    private static func sorted(_ bundle: ModelBundle, _ places: [String: [Int]]) -> [ModelVersion] {
        bundle.versions.enumerated().sorted { first, second in
            let ages = [first, second].map { places[$0.element.name]?.reduce(0, +) ?? 0 }
            return ages[0] == ages[1] ? first.offset < second.offset : ages[0] < ages[1]
        }.map(\.element)
    }

    private func index(of version: ModelVersion) -> Int? { versions.firstIndex { $0.name == version.name } }

    private static func mappedPairs(
        among versions: [ModelVersion], _ mappings: [MappingModelFile]
    ) -> Set<MappedPair> {
        guard !mappings.isEmpty else { return [] }
        var pairs: Set<MappedPair> = []
        // Without hashes, a mapping model leads from and to the versions that it names.
        let names = Set(
            mappings.flatMap { [$0.mappingModel.sourceVersionName, $0.mappingModel.destinationVersionName] })
        let isAnyVersion = mappings.contains { $0.mappingModel.hasHashes }
        let candidates = versions.filter { isAnyVersion || names.contains($0.name) }
        for version in candidates {
            for target in candidates where target.name != version.name {
                guard mappings.contains(where: { $0.leads(from: version, to: target) }) else { continue }
                pairs.insert(MappedPair(from: version.name, to: target.name))
            }
        }
        return pairs
    }

    /// Sorts each version behind those from which a mapping model leads to it. Mapping models that form a cycle are
    /// ignored.
    private static func sorted(_ versions: [ModelVersion], by pairs: Set<MappedPair>) -> [ModelVersion] {
        guard !pairs.isEmpty else { return versions }
        var remaining = versions
        var sorted: [ModelVersion] = []
        while !remaining.isEmpty {
            let next = remaining.firstIndex { version in
                !remaining.contains { pairs.contains(MappedPair(from: $0.name, to: version.name)) }
            }
            guard let next else { return versions }
            sorted.append(remaining.remove(at: next))
        }
        return sorted
    }
}

extension MappingModelFile {
    /// Returns true if the mapping model explicitly leads from one version to the other. One with neither version names
    /// nor hashes doesn't count, since it may fit backwards too.
    fileprivate func leads(from version: ModelVersion, to target: ModelVersion) -> Bool {
        let namesVersions =
            mappingModel.hasHashes
            || mappingModel.sourceVersionName == version.name && mappingModel.destinationVersionName == target.name
        return namesVersions && fits(from: (version.name, version.model), to: (target.name, target.model))
    }
}

/// A version's name in Xcode's scheme: `Notes`, `Notes 2`, `Notes 3`.
private struct NumberedName {
    private let name: String
    private let stem: Substring
    /// The digits without leading zeros; empty for the first version.
    private let number: Substring

    init(_ name: String) {
        self.name = name
        let digits = name.reversed().prefix { ("0"..."9").contains($0) }.count
        number = name.suffix(digits).drop { $0 == "0" }
        var stem = name.dropLast(digits)
        while digits > 0, let last = stem.last, " _-.".contains(last) { stem.removeLast() }
        self.stem = stem
    }

    func follows(_ other: NumberedName) -> Bool {
        if stem == other.stem { return (number.count, String(number)) > (other.number.count, String(other.number)) }
        return !number.isEmpty && stem.hasPrefix(other.name)
    }
}
