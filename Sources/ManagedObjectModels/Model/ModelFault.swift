/// What is wrong with a model: which entity and property, and what would help. It knows no file; `ModelError` does.
public struct ModelFault: Error, Equatable, Sendable {
    public let entity: String?
    public let property: String?
    public let message: String
    /// One line.
    public let remedy: String

    public init(entity: String? = nil, property: String? = nil, _ message: String, remedy: String) {
        self.entity = entity
        self.property = property
        self.message = message
        self.remedy = remedy
    }

    /// `Entity`, `Entity.property`, or nil.
    public var element: String? { entity.map { entity in property.map { entity + "." + $0 } ?? entity } }
}
