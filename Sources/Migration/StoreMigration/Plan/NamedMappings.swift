import LinuxSystem
import ManagedObjectModels
import MappingModels
import SystemPackage

extension [MappingModelFile] {
    /// Throws `MigrationError` for a mapping model that a person named and that leads from no version to a later one:
    /// without it, an inferred mapping would drop the values that it was to keep. One for versions that a store has
    /// passed is accepted, since several stores may be migrated with the same mapping models.
    package func requireUse(
        from source: (name: String?, model: ManagedObjectModel), to target: ModelVersion, in bundle: ModelBundle?
    ) throws(MigrationError) {
        let named = filter(\.isNamed)
        guard !named.isEmpty else { return }
        let versions = bundle.map { VersionOrder($0, mappings: self).versions.map { ($0.name, $0.model) } } ?? []
        let isStray = !versions.contains { $0.0 == source.name }
        for file in named {
            let isUsed =
                file.fits(from: source, to: (target.name, target.model))
                || versions.indices.contains { index in
                    let new: (name: String?, model: ManagedObjectModel) = versions[index]
                    return versions[..<index].contains { file.fits(from: $0, to: new) }
                        || isStray && file.fits(from: source, to: new)
                }
            guard !isUsed else { continue }
            var error = MigrationError(
                CoreDataError.missingMappingModel,
                "\(PrintablePath(file.path)) isn't used: \(file.direction), which is no step to \(target.name)",
                remedy: "name a mapping model \(source.name.map { "from \($0) " } ?? "")to \(target.name), or none")
            error.isOfNamedMapping = true
            throw error
        }
    }
}

extension MappingModelFile {
    /// The versions that the mapping model is for, in words.
    fileprivate var direction: String {
        let (old, new) = (mappingModel.sourceVersionName, mappingModel.destinationVersionName)
        guard old != nil || new != nil else { return "it names elements or hashes that the versions don't have" }
        return "it leads from \(old ?? "any version") to \(new ?? "any version")"
    }
}
