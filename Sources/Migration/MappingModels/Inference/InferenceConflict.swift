import ManagedObjectModels

/// A property for which no mapping can be inferred between two versions. It usually prevents the same between other
/// versions, and to find that out takes far less than an inference.
package struct InferenceConflict: Equatable, Sendable {
    private let entity: String
    private let property: String

    /// Returns nil if the reason isn't about a property.
    package init?(_ reason: MigrationFinding) {
        guard let entity = reason.entity, let property = reason.property else { return nil }
        self.entity = entity
        self.property = property
    }

    /// Returns true if the property prevents an inference between these models too, so that there is none; false if an
    /// inference may be possible.
    package func prevents(from source: ManagedObjectModel, to destination: ManagedObjectModel) -> Bool {
        guard let new = destination.entity(named: entity),
            let old = source.entities.first(where: { $0.renamingIdentifier == new.renamingIdentifier }),
            let property = destination.property(named: property, of: new)
        else { return false }
        let former = source.properties(of: old).first { $0.renamingIdentifier == property.renamingIdentifier }
        var inference = MappingInference(source, destination)
        switch (former, property) {
        case (.attribute(let former)?, .attribute(let attribute)): inference.check(former, attribute, of: new.name)
        case (.relationship(let former)?, .relationship(let relationship)):
            inference.check(former, relationship, of: new.name)
        default: break
        }
        return !inference.reasons.isEmpty
    }
}
