/// What was renamed from one version to the next, said from outside of the model: as an app does that sets
/// `renamingIdentifier` in code.
public struct ModelRenaming: Equatable, Sendable {
    /// Entities and properties of the older version.
    public let entity: String
    public let property: String?
    /// The name in the newer version.
    public let newName: String

    public init(entity: String, property: String? = nil, newName: String) {
        self.entity = entity
        self.property = property
        self.newName = newName
    }

    /// `Car=Automobile`, or `Car.color=paintColor`; nil when the text is neither.
    public init?(_ text: String) {
        let sides = text.split(separator: "=", omittingEmptySubsequences: false)
        let names = sides.first?.split(separator: ".", omittingEmptySubsequences: false) ?? []
        guard sides.count == 2, (1...2).contains(names.count), !names.contains(where: \.isEmpty), !sides[1].isEmpty
        else {
            return nil
        }
        self.init(
            entity: String(names[0]), property: names.count == 2 ? String(names[1]) : nil, newName: String(sides[1]))
    }
}

extension ModelRenaming: CustomStringConvertible {
    /// The text that it is made of.
    public var description: String { entity + (property.map { "." + $0 } ?? "") + "=" + newName }
}

extension ManagedObjectModel {
    /// This model with the renaming identifiers that make it the successor of `old` by these renamings. Throws
    /// `ModelFault` where a name is in neither.
    public func renamed(_ renamings: [ModelRenaming], from old: ManagedObjectModel) throws -> ManagedObjectModel {
        var entities = self.entities
        for renaming in renamings where renaming.property == nil {
            let was = try Self.entity(renaming.entity, old)
            guard let index = entities.firstIndex(where: { $0.name == renaming.newName }) else {
                throw Self.fault(renaming.newName, nil, "the newer model has no such entity")
            }
            entities[index].renamingIdentifier = was.renamingIdentifier
        }
        for renaming in renamings {
            guard let property = renaming.property else { continue }
            let was = try Self.entity(renaming.entity, old)
            guard let oldProperty = old.property(named: property, of: was) else {
                throw Self.fault(was.name, property, "the older model has no such property")
            }
            guard let index = entities.firstIndex(where: { $0.renamingIdentifier == was.renamingIdentifier }) else {
                throw Self.fault(was.name, property, "the newer model has no entity that was this one")
            }
            guard entities[index].setRenamingIdentifier(oldProperty.renamingIdentifier, of: renaming.newName) else {
                throw Self.fault(entities[index].name, renaming.newName, "the newer model declares no such property")
            }
        }
        return try ManagedObjectModel(
            entities: entities, versionIdentifiers: versionIdentifiers, configurations: configurations,
            fetchRequestTemplates: fetchRequestTemplates)
    }

    private static func entity(_ name: String, _ model: ManagedObjectModel) throws -> EntityDescription {
        guard let found = model.entity(named: name) else {
            throw fault(name, nil, "the older model has no such entity")
        }
        return found
    }

    private static func fault(_ entity: String, _ property: String?, _ message: String) -> ModelFault {
        ModelFault(
            entity: entity, property: property, message, remedy: "a renaming is OLD=NEW or ENTITY.OLD=NEW")
    }
}

extension EntityDescription {
    /// False when the entity declares no such property.
    fileprivate mutating func setRenamingIdentifier(_ identifier: String, of name: String) -> Bool {
        if let index = attributes.firstIndex(where: { $0.name == name }) {
            attributes[index].renamingIdentifier = identifier
        } else if let index = relationships.firstIndex(where: { $0.name == name }) {
            relationships[index].renamingIdentifier = identifier
        } else {
            return false
        }
        return true
    }
}
