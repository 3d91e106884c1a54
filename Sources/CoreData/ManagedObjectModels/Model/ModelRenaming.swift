/// A renaming from one version to the next that the model itself doesn't record. It corresponds to setting
/// `renamingIdentifier` in code.
///
/// ```swift
/// let renamings = ["Car=Automobile", "Car.color=paintColor"].compactMap(ModelRenaming.init)
/// let successor = try newer.renamed(renamings, from: older)
/// ```
public struct ModelRenaming: Equatable, Sendable {
    /// The name of the entity in the older version.
    public let entity: String
    /// The name of the property in the older version; nil if the entity was renamed.
    public let property: String?
    /// The name of the entity or property in the newer version.
    public let newName: String

    /// Creates a renaming of an entity, or of one of its properties.
    public init(entity: String, property: String? = nil, newName: String) {
        self.entity = entity
        self.property = property
        self.newName = newName
    }

    /// Parses `Car=Automobile` or `Car.color=paintColor`; nil for any other form.
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
    /// The text form, which ``init(_:)`` parses.
    public var description: String { entity + (property.map { "." + $0 } ?? "") + "=" + newName }
}

extension ManagedObjectModel {
    /// Returns this model with the renaming identifiers that match its entities and properties with those of `old`.
    ///
    /// - Throws: ``ModelFault`` if a renaming names an entity or property that the models don't have.
    public func renamed(_ renamings: [ModelRenaming], from old: ManagedObjectModel) throws -> ManagedObjectModel {
        do { return try applying(renamings, from: old) } catch let fault as ModelFault {
            throw fault.coded(ModelFault.badRenamingCode)
        }
    }

    private func applying(_ renamings: [ModelRenaming], from old: ManagedObjectModel) throws -> ManagedObjectModel {
        var entities = self.entities
        for renaming in renamings where renaming.property == nil {
            let oldEntity = try Self.entity(renaming.entity, old)
            guard let index = entities.firstIndex(where: { $0.name == renaming.newName }) else {
                throw Self.fault(entity: renaming.newName, property: nil, "the newer model has no such entity")
            }
            entities[index].renamingIdentifier = oldEntity.renamingIdentifier
        }
        for renaming in renamings {
            guard let property = renaming.property else { continue }
            let oldEntity = try Self.entity(renaming.entity, old)
            guard let oldProperty = old.property(named: property, of: oldEntity) else {
                throw Self.fault(entity: oldEntity.name, property: property, "the older model has no such property")
            }
            guard let index = entities.firstIndex(where: { $0.renamingIdentifier == oldEntity.renamingIdentifier })
            else {
                throw Self.fault(
                    entity: oldEntity.name, property: property, "the newer model has no entity that this one became")
            }
            guard entities[index].setRenamingIdentifier(oldProperty.renamingIdentifier, of: renaming.newName) else {
                throw Self.fault(
                    entity: entities[index].name, property: renaming.newName,
                    "the newer model declares no such property")
            }
        }
        return try ManagedObjectModel(
            entities: entities, versionIdentifiers: versionIdentifiers, configurations: configurations,
            fetchRequestTemplates: fetchRequestTemplates)
    }

    private static func entity(_ name: String, _ model: ManagedObjectModel) throws -> EntityDescription {
        guard let found = model.entity(named: name) else {
            throw fault(entity: name, property: nil, "the older model has no such entity")
        }
        return found
    }

    private static func fault(entity: String, property: String?, _ message: String) -> ModelFault {
        ModelFault(
            entity: entity, property: property, message, remedy: "write a renaming as OLD=NEW or ENTITY.OLD=NEW")
    }
}

extension EntityDescription {
    /// Returns false if the entity declares no such property.
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
