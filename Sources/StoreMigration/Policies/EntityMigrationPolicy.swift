import ManagedObjectModels
import MappingModels

/// What a mapping model's expressions can't say, in Swift: `NSEntityMigrationPolicy`. Inherit from it, override what is to
/// be different, and register the class under the name that the mapping model has for it.
///
/// The methods are called in this order, for each entity mapping: first all mappings' objects are made, then all
/// relationships, then everything is validated. A method that throws ends the migration; the store is as it was.
open class EntityMigrationPolicy {
    /// One policy is made for each entity mapping that names the class.
    public required init() {}

    /// Before the mapping's first object is made.
    open func begin(_ mapping: EntityMapping, with manager: MigrationSession) throws {}

    /// Makes the new objects for one older object, and associates them with it. As it is, one new object is made, with
    /// the values that the mapping says.
    open func createDestinationInstances(
        forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
    ) throws {
        _ = try manager.createDefaultInstance(for: source)
    }

    /// After the mapping's last object was made.
    open func endInstanceCreation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {}

    /// Sets the relationships of one new object: those that the mapping has a value for. Called for each object that is
    /// associated with an older one.
    open func createRelationships(
        forDestination destination: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
    ) throws {
        try manager.createDefaultRelationships(of: destination)
    }

    /// After the last object's relationships were set.
    open func endRelationshipCreation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {}

    /// When all objects and relationships are there, before Core Data's own rules are looked at.
    open func performCustomValidation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {}

    /// The mapping is done.
    open func end(_ mapping: EntityMapping, manager: MigrationSession) throws {}

    /// Answers `FUNCTION($entityPolicy, "selector:", …)` in a property's value expression.
    open func value(
        forSelector selector: String, arguments: [PolicyArgument], manager: MigrationSession
    ) throws -> PolicyArgument {
        throw PolicyError("there is no function “\(selector)” in \(type(of: self))")
    }
}

/// What a policy's function is given, and gives.
public enum PolicyArgument {
    /// An attribute's value, or a constant; nil for none.
    case value(AttributeValue?)
    /// `$source`, `$destination`, or what a to-one relationship leads to.
    case object(MigrationObject?)
    case objects([MigrationObject])
    /// `$manager`, `$entityMapping` or `$entityPolicy`: the method has them anyway.
    case context
}

/// Why a policy can't do what it is asked.
public struct PolicyError: Error, Equatable, CustomStringConvertible, Sendable {
    public let description: String

    public init(_ description: String) { self.description = description }
}

/// The policies that an app has, by the names that mapping models have for them.
public struct EntityMigrationPolicies: ExpressibleByDictionaryLiteral, Sendable {
    private var types: [String: EntityMigrationPolicy.Type] = [:]

    public init(dictionaryLiteral elements: (String, EntityMigrationPolicy.Type)...) {
        for (name, type) in elements { register(type, as: name) }
    }

    /// - Parameter name: With its module, such as `App.NotePolicy`, or without: then it answers for that class of each
    ///   module.
    public mutating func register(_ type: EntityMigrationPolicy.Type, as name: String) { types[name] = type }

    /// Nil when nobody registered it.
    public subscript(name: String) -> EntityMigrationPolicy.Type? {
        types[name] ?? types[name.split(separator: ".").last.map(String.init) ?? name]
    }

    public var names: [String] { types.keys.sorted() }

    /// Throws `MappingModelError` for the first policy of the mapping model that nobody registered.
    func require(of mapping: MappingModel) throws(MappingModelError) {
        for one in mapping.entityMappings {
            guard let name = one.entityMigrationPolicyClassName, self[name] == nil else { continue }
            let known = names.isEmpty ? "none is registered" : "registered are " + names.joined(separator: ", ")
            throw MappingModelError(
                .unknownPolicy, nil, element: one.name, "nobody registered the migration policy “\(name)”: \(known)",
                remedy: "register a class for it in the app, or say what it does in a mapping model in YAML")
        }
    }
}
