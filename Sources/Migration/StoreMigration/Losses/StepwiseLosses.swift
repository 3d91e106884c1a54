import ManagedObjectModels
import MappingModels

/// The content that a migration in several steps loses, but that a single step would have kept or refused to change. A
/// property that both end versions have, but a version between them lacks, comes back without values.
struct StepwiseLosses {
    private let steps: [MigrationStep]
    private(set) var findings: [MigrationFinding] = []

    init(from old: ManagedObjectModel, to new: ManagedObjectModel, through steps: [MigrationStep]) {
        self.steps = steps
        for case (let former?, let entity) in Pairing(
            old.entities, new.entities, identifier: \.renamingIdentifier, name: \.name
        ).all {
            if let version = versionAdding(entity.name) {
                add(
                    entity.name, nil,
                    message: "all objects are lost on the way: \(version) adds the entity without them")
                continue
            }
            let declared = Set(entity.declaredProperties.map(\.name))
            let properties = Pairing(
                old.properties(of: former), new.properties(of: entity), identifier: \.renamingIdentifier, name: \.name)
            for case (let before?, let property) in properties.all where declared.contains(property.name) {
                guard before.kind == property.kind, !before.isTransient, !property.isTransient,
                    let version = versionAdding(entity.name, property.name)
                else { continue }
                add(
                    entity.name, property.name,
                    message: "all values are lost on the way: \(version) adds the \(property.kind) without them")
            }
        }
    }

    private mutating func add(_ entity: String, _ property: String?, message: String) {
        var finding = MigrationFinding(
            .warning, entity: entity, property: property, message,
            remedy: "to keep them, write a mapping model that skips the versions between")
        finding.isRemoval = true
        findings.append(finding)
    }

    /// Returns the version that adds the newest version's entity or property as new; nil if none does, or if a mapping
    /// model decides what becomes of it.
    private func versionAdding(_ entity: String, _ property: String? = nil) -> String? {
        var (entity, property) = (entity, property)
        for step in steps.reversed() {
            guard case .inferred(let mapping) = step.method else { return nil }
            let found = mapping.entityMappings.first { $0.destinationEntityName == entity }
            guard let found, let source = found.sourceEntityName else { return step.destinationName }
            if let name = property {
                let mapped = (found.attributeMappings + found.relationshipMappings).first { $0.name == name }
                guard let sourceName = mapped?.sourceName else { return step.destinationName }
                property = sourceName
            }
            entity = source
        }
        return nil
    }
}
