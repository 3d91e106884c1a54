import FoundationEssentials
import ManagedObjectModels
import MappingModels

/// Migrates one entity in Swift where a mapping model's expressions don't suffice. Corresponds to
/// `NSEntityMigrationPolicy`. Subclass it, override the steps to change, and register the class under the name that the
/// mapping model uses for it.
///
///     final class AnimalPolicy: EntityMigrationPolicy {
///         override func createDestinationInstances(
///             forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
///         ) throws {
///             let animal = try manager.createDefaultInstance(for: source)
///             try animal.setValue(.string("unknown"), forKey: "species")
///         }
///     }
///
/// For each entity mapping, the methods are called in the order of their declaration;
/// ``value(forSelector:arguments:manager:)`` is called whenever an expression needs it. The migration first creates the
/// objects of all entity mappings, then sets all relationships, then validates everything. If a method throws, the
/// migration ends with ``MigrationError`` and leaves the store unchanged. All calls come from one thread.
open class EntityMigrationPolicy {
    /// Creates a policy. The migration creates one for each entity mapping that names the class.
    public required init() {}

    /// Called before the mapping's first object is created.
    open func begin(_ mapping: EntityMapping, with manager: MigrationSession) throws {}

    /// Creates the new objects for one older object and associates them with it. The default implementation creates one
    /// object with the mapping's values; see ``MigrationSession/createDefaultInstance(for:)``.
    open func createDestinationInstances(
        forSource source: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
    ) throws {
        _ = try manager.createDefaultInstance(for: source)
    }

    /// Called after the mapping's last object was created.
    open func endInstanceCreation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {}

    /// Sets the relationships of one new object. Called for each object that is associated with an older one. The
    /// default implementation sets the relationships that the mapping has a value for.
    open func createRelationships(
        forDestination destination: MigrationObject, in mapping: EntityMapping, manager: MigrationSession
    ) throws {
        try manager.createDefaultRelationships(of: destination)
    }

    /// Called after the relationships of the mapping's last object were set.
    open func endRelationshipCreation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {}

    /// Called when all objects and relationships exist, before Core Data's own rules are validated.
    open func performCustomValidation(forMapping mapping: EntityMapping, manager: MigrationSession) throws {}

    /// Called last, when the mapping is finished.
    open func end(_ mapping: EntityMapping, manager: MigrationSession) throws {}

    /// Returns the value of `FUNCTION($entityPolicy, "selector:", …)` in a property's value expression.
    ///
    /// - Parameters:
    ///   - selector: The name of the function, such as `nameFor:`.
    ///   - arguments: The arguments behind the selector, in order.
    ///   - manager: The running migration.
    /// - Throws: ``PolicyError`` in the default implementation, which knows no selector.
    open func value(
        forSelector selector: String, arguments: [PolicyArgument], manager: MigrationSession
    ) throws -> PolicyArgument {
        throw PolicyError("there is no function “\(selector)” in \(type(of: self))")
    }
}

/// An argument or the result of a policy's function.
///
///     guard case .value(let name?) = arguments[0] else { return .value(nil) }
///     return .value(.string((name.stringValue ?? "").uppercased()))
public enum PolicyArgument {
    /// An attribute's value or a constant; nil for no value.
    case value(AttributeValue?)
    /// `$source`, `$destination`, or the destination of a to-one relationship; nil for no object.
    case object(MigrationObject?)
    /// The destinations of a to-many relationship.
    case objects([MigrationObject])
    /// `$manager`, `$entityMapping` or `$entityPolicy`, which the method receives anyway.
    case context
}

/// The reason a policy can't perform a request. A policy may throw its own:
///
///     throw PolicyError("a note has no title")
public struct PolicyError: LocalizedError, Equatable, CustomStringConvertible, Sendable {
    /// The message for a person.
    public let description: String
    /// The message, as `localizedDescription`.
    public var errorDescription: String? { description }

    /// Creates an error with a message.
    public init(_ description: String) { self.description = description }
}

/// An app's policies, by the names that mapping models use for them.
///
///     let policies: EntityMigrationPolicies = ["ZooApp.AnimalPolicy": AnimalPolicy.self]
public struct EntityMigrationPolicies: ExpressibleByDictionaryLiteral, Sendable {
    private var types: [String: EntityMigrationPolicy.Type] = [:]

    /// Registers each class under its name.
    public init(dictionaryLiteral elements: (String, EntityMigrationPolicy.Type)...) {
        for (name, type) in elements { register(type, as: name) }
    }

    /// Registers a policy class, replacing one of the same name.
    ///
    /// - Parameters:
    ///   - type: The policy class.
    ///   - name: The class name with its module, such as `App.NotePolicy`, or without it to match every module.
    public mutating func register(_ type: EntityMigrationPolicy.Type, as name: String) { types[name] = type }

    /// The class registered under the name, else under the name without its module; nil if there is none.
    public subscript(name: String) -> EntityMigrationPolicy.Type? {
        types[name] ?? types[name.split(separator: ".").last.map(String.init) ?? name]
    }

    /// The registered names, sorted.
    public var names: [String] { types.keys.sorted() }

    /// Throws `MappingModelError` for the mapping model's first policy that isn't registered.
    func require(of mapping: MappingModel) throws(MappingModelError) {
        for entityMapping in mapping.entityMappings {
            guard let name = entityMapping.entityMigrationPolicyClassName, self[name] == nil else { continue }
            let registered = names.isEmpty ? "none is registered" : "registered are " + names.joined(separator: ", ")
            throw MappingModelError(
                .unknownPolicy, at: nil, element: entityMapping.name,
                "the migration policy “\(name)” is not registered: \(registered)",
                remedy: "register a class for it in the app, or replace it by expressions in a YAML mapping model")
        }
    }
}
