import LinuxSystem

/// An inconsistency in a model: the entity and property, the reason and a remedy.
///
/// A fault names no file. ``ModelError`` reports a fault in a file.
public struct ModelFault: ActionableError, Equatable {
    /// The entity at fault; nil if the fault is in no single one.
    public let entity: String?
    /// The property at fault; nil if the fault is in no single one.
    public let property: String?
    /// The reason, in one line.
    public let message: String
    /// A suggestion that helps, in one line.
    public let remedy: String
    /// A stable word for programs: `invalid_model`, `name_collision`, `bad_renaming` or `unmergeable_models`.
    public private(set) var errorCode = ModelError.Code.invalid.rawValue

    /// Creates a fault of a property, an entity, or the whole model.
    public init(entity: String? = nil, property: String? = nil, _ message: String, remedy: String) {
        self.entity = entity
        self.property = property
        self.message = message
        self.remedy = remedy
    }

    /// The code of a renaming that doesn't fit the models.
    package static let badRenamingCode = "bad_renaming"

    /// Returns this fault with a code for what was attempted.
    package func coded(_ code: String) -> ModelFault {
        var fault = self
        fault.errorCode = code
        return fault
    }

    /// The element and message.
    public var fullMessage: String { (element.map { $0 + ": " } ?? "") + message }
    /// The element and message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }

    /// The location: `Entity` or `Entity.property`; nil for the whole model.
    public var element: String? { entity.map { entity in property.map { entity + "." + $0 } ?? entity } }
}
