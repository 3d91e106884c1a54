import LinuxSystem
import SystemPackage

extension ModelBundle {
    /// The limit of combinations of versions.
    private static let maximumCombinationCount = 2_000

    /// Merges the models of several bundles, as an app does that loads several with
    /// `NSManagedObjectModel(byMerging:)`.
    ///
    /// The current version merges the current versions. The other versions are all other combinations that can be
    /// merged, since a store may have any of them; `Notes 2 + Tags` is a combination's name.
    ///
    /// ```swift
    /// let model = try ModelBundle(merging: [
    ///     ModelBundle(reading: "/opt/notes/Notes.momd"), ModelBundle(reading: "/opt/notes/Tags.momd"),
    /// ])
    /// ```
    ///
    /// - Throws: ``ModelError`` with the code ``ModelError/Code/unmergeable`` if two current versions have different
    ///   entities of one name, or there are too many combinations.
    public init(merging bundles: [ModelBundle]) throws {
        guard let first = bundles.first else {
            throw ModelError(.notAModel, "", "no model was named", remedy: "name at least one")
        }
        guard bundles.count > 1 else {
            self = first
            return
        }
        var count = 1
        for bundle in bundles { count = min(count * bundle.versions.count, Self.maximumCombinationCount + 1) }
        guard count <= Self.maximumCombinationCount else {
            throw ModelError(
                .unmergeable, first.path,
                "the models' versions have more than \(Self.maximumCombinationCount) combinations",
                remedy: "name single versions, an .xcdatamodel or .mom each")
        }
        let current = try Self.merged(bundles.map(\.current), of: bundles)
        var versions = [current]
        for parts in Self.combinations(bundles.map(\.versions)) {
            // Versions that can't be merged never made a store together.
            guard let version = try? Self.merged(parts, of: bundles), version.name != current.name else { continue }
            versions.append(version)
        }
        self.init(
            merged: versions, of: bundles, unreadable: bundles.flatMap(\.unreadable), currentName: current.name)
    }

    private static func combinations(_ lists: [[ModelVersion]]) -> [[ModelVersion]] {
        lists.reduce([[]]) { combinations, versions in
            combinations.flatMap { combination in versions.map { combination + [$0] } }
        }
    }

    private static func merged(_ parts: [ModelVersion], of bundles: [ModelBundle]) throws -> ModelVersion {
        do {
            let model = try ManagedObjectModel(merging: parts.map(\.model))
            return ModelVersion(
                name: parts.map(\.name).joined(separator: " + "), model: model, path: bundles[0].path,
                remarks: parts.flatMap(\.remarks), components: parts)
        } catch let fault as ModelFault {
            let owners = zip(parts, bundles).filter { part, _ in
                fault.entity.flatMap(part.model.entity(named:)) != nil
            }
            let names = owners.map { "\(PrintablePath($1.path)) (\($0.name))" }.joined(separator: " and ")
            throw ModelError(
                .unmergeable, bundles[0].path, element: fault.element,
                fault.message + (names.isEmpty ? "" : ": " + names), remedy: fault.remedy)
        }
    }

    /// Reads the models at several paths and merges them. See ``init(merging:)``.
    package init(reading paths: [FilePath], configuration: String? = nil) throws {
        let merged = try ModelBundle(merging: paths.map { try ModelBundle(reading: $0) })
        self = try configuration.map(merged.restricted) ?? merged
    }

    // MARK: Configurations

    /// Returns the model's versions with the entities of one configuration only, for a store that holds just those.
    /// Versions without that configuration are left out.
    ///
    /// - Throws: ``ModelError`` if the current version has no such configuration, or its entities refer to others.
    public func restricted(toConfiguration name: String) throws -> ModelBundle {
        var restricted: [ModelVersion] = []
        for version in versions {
            do { restricted.append(version.replacing(try version.model.restricted(toConfiguration: name))) } catch {
                guard isCurrent(version), let fault = error as? ModelFault else { continue }
                throw ModelError(fault, version.path)
            }
        }
        return ModelBundle(merged: restricted, of: parts, path: path, unreadable: unreadable, currentName: current.name)
    }
}

extension ManagedObjectModel {
    /// Returns the model with the entities of one configuration only.
    ///
    /// ```swift
    /// let local = try model.restricted(toConfiguration: "Local")
    /// ```
    ///
    /// - Throws: ``ModelFault`` if there is no such configuration, or one of its entities inherits from an entity
    ///   outside it or has a relationship to one. Core Data permits neither across stores.
    public func restricted(toConfiguration name: String) throws -> ManagedObjectModel {
        guard let members = configurations[name].map(Set.init) else {
            let known = configurations.keys.sorted { $0.precedes($1) }
            throw ModelFault(
                "the model has no configuration “\(name)”",
                remedy: known.isEmpty
                    ? "omit the configuration" : "name one of: " + known.joined(separator: ", "))
        }
        return try ManagedObjectModel(
            entities: entities.filter { members.contains($0.name) }, versionIdentifiers: versionIdentifiers,
            configurations: [name: members.sorted { $0.precedes($1) }],
            fetchRequestTemplates: fetchRequestTemplates.filter { members.contains($0.entityName) })
    }
}
