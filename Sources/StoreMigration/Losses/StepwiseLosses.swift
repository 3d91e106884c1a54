import ManagedObjectModels
import MappingModels

/// What a migration in steps loses that one step would have kept, or refused to touch: a property that both ends have, and a
/// version between them hasn't, begins without values when it comes back.
struct StepwiseLosses {
    private let steps: [MigrationPath.Step]
    private(set) var findings: [MigrationFinding] = []

    init(from old: ManagedObjectModel, to new: ManagedObjectModel, through steps: [MigrationPath.Step]) {
        self.steps = steps
        for case (let was?, let entity) in Pairing(old.entities, new.entities, \.renamingIdentifier, \.name).all {
            if let version = versionWithout(entity.name) {
                add(entity.name, nil, "all objects are lost on the way: in \(version) the entity begins without them")
                continue
            }
            let declared = Set(entity.declaredProperties.map(\.name))
            let properties = Pairing(
                old.properties(of: was), new.properties(of: entity), \.renamingIdentifier, \.name)
            for case (let before?, let property) in properties.all where declared.contains(property.name) {
                guard before.kind == property.kind, !before.isTransient, !property.isTransient,
                    let version = versionWithout(entity.name, property.name)
                else { continue }
                add(
                    entity.name, property.name,
                    "all values are lost on the way: in \(version) the \(property.kind) begins without them")
            }
        }
    }

    private mutating func add(_ entity: String, _ property: String?, _ message: String) {
        var finding = MigrationFinding(
            .warning, entity: entity, property: property, message,
            remedy: "write a mapping model that leads past that version, where they are to be kept")
        finding.isRemoval = true
        findings.append(finding)
    }

    /// The version in which what became the newest version's entity or property begins anew; nil where it never does, or
    /// where a mapping model says what becomes of it.
    private func versionWithout(_ entity: String, _ property: String? = nil) -> String? {
        var (entity, property) = (entity, property)
        for step in steps.reversed() {
            guard case .inferred(let mapping) = step.method else { return nil }
            let found = mapping.entityMappings.first { $0.destinationEntityName == entity }
            guard let found, let source = found.sourceEntityName else { return step.name }
            if let name = property {
                let mapped = (found.attributeMappings + found.relationshipMappings).first { $0.name == name }
                guard let sourceName = mapped?.sourceName else { return step.name }
                property = sourceName
            }
            entity = source
        }
        return nil
    }
}
