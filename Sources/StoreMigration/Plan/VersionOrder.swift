import ManagedObjectModels
import MappingModels

/// A model's versions from the oldest to the newest, and so which of them a store may be migrated to, and through.
///
/// A model says of one version only that it is the current one: that is the newest, whatever its name. A version that
/// has the current one's name with a higher number (`Notes 3` beside `Notes 2`), or with a number behind it (`Notes_v2`
/// beside `Notes`), is newer still, one that somebody is working on. Where a mapping
/// model leads from one version to another, the latter is the newer one. All others are in the order of their names.
package struct VersionOrder: Sendable {
    /// The oldest first.
    package let versions: [ModelVersion]
    private let mapped: Set<Lead>

    /// From one version to another, by a mapping model.
    private struct Lead: Hashable {
        let from: String
        let to: String
    }

    package init(_ bundle: ModelBundle, mappings: [MappingModelFile] = []) {
        let current = bundle.current
        let others = bundle.versions.filter { $0.name != current.name }
        let isLater = { (version: ModelVersion) in NumberedName(version.name).follows(NumberedName(current.name)) }
        mapped = Self.leads(among: bundle.versions, mappings)
        versions = Self.sorted(others.filter { !isLater($0) }, by: mapped) + [current] + others.filter(isLater)
    }

    /// Whether `version` is an older one than `target`, or a mapping model leads there all the same.
    package func leads(from version: ModelVersion, to target: ModelVersion) -> Bool {
        guard let start = place(of: version), let end = place(of: target) else { return false }
        return start < end || mapped.contains(Lead(from: version.name, to: target.name))
    }

    /// The versions that a store of the one may be migrated through on its way to the other, in order.
    package func between(_ version: ModelVersion, _ target: ModelVersion) -> [ModelVersion] {
        guard let start = place(of: version), let end = place(of: target), start < end else { return [] }
        return Array(versions[start + 1..<end])
    }

    private func place(of version: ModelVersion) -> Int? { versions.firstIndex { $0.name == version.name } }

    private static func leads(among versions: [ModelVersion], _ mappings: [MappingModelFile]) -> Set<Lead> {
        guard !mappings.isEmpty else { return [] }
        var found: Set<Lead> = []
        for version in versions {
            for other in versions where other.name != version.name {
                guard mappings.contains(where: { $0.leads(from: version, to: other) }) else { continue }
                found.insert(Lead(from: version.name, to: other.name))
            }
        }
        return found
    }

    /// Each version after those that mapping models lead from to it. Where they lead in a circle, they say nothing.
    private static func sorted(_ versions: [ModelVersion], by leads: Set<Lead>) -> [ModelVersion] {
        guard !leads.isEmpty else { return versions }
        var left = versions
        var found: [ModelVersion] = []
        while !left.isEmpty {
            let next = left.firstIndex { version in
                !left.contains { leads.contains(Lead(from: $0.name, to: version.name)) }
            }
            guard let next else { return versions }
            found.append(left.remove(at: next))
        }
        return found
    }
}

extension MappingModelFile {
    /// One that says neither which versions it is for nor their hashes may fit backwards, too.
    fileprivate func leads(from version: ModelVersion, to other: ModelVersion) -> Bool {
        let isOfThese =
            mappingModel.hasHashes
            || mappingModel.sourceVersionName == version.name && mappingModel.destinationVersionName == other.name
        return isOfThese && fits(from: (version.name, version.model), to: (other.name, other.model))
    }
}

/// A version's name as Xcode gives them: `Notes`, `Notes 2`, `Notes 3`.
private struct NumberedName {
    private let name: String
    private let stem: Substring
    /// Digits without zeros in front; the first version has none.
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
