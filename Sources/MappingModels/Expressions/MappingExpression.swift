import ManagedObjectModels

/// What a value is made of: `NSExpression`, as far as mapping models use it.
public indirect enum MappingExpression: Equatable, Sendable {
    /// Nil for `nil`.
    case constant(AttributeValue?)
    /// `SELF`.
    case evaluatedObject
    /// `$source`, `$manager`, `$destination`, `$entityMapping`, `$entityPolicy`, or a subquery's own; without the `$`.
    case variable(String)
    /// `operand.path`; the path may go over relationships, and through operators such as `@count`.
    case keyPath(of: MappingExpression, String)
    /// `FUNCTION(receiver, "selector:", arguments…)`.
    case message(to: MappingExpression, selector: String, [MappingExpression])
    /// A function of the format language by its selector, such as `add:to:`, which `+` stands for.
    case function(String, [MappingExpression])
    /// `{…}`.
    case aggregate([MappingExpression])
    /// `TERNARY(condition, first, second)`.
    case conditional(MappingPredicate, MappingExpression, MappingExpression)
    /// `SUBQUERY(collection, $variable, condition)`.
    case subquery(MappingExpression, variable: String, MappingPredicate)
    /// `FETCH(request, context, count only)`: where a compiled mapping model's objects come from.
    case fetch(MappingExpression, in: MappingExpression, isCountOnly: Bool)
}

/// A condition: `NSPredicate`, as far as mapping models use it.
public indirect enum MappingPredicate: Equatable, Sendable {
    /// `TRUEPREDICATE`, `FALSEPREDICATE`.
    case constant(Bool)
    case comparison(Comparison)
    case and([MappingPredicate])
    case or([MappingPredicate])
    case not(MappingPredicate)

    public struct Comparison: Equatable, Sendable {
        /// `NSPredicateOperatorType`, by the numbers in archives.
        public enum Operator: Int, Sendable, CaseIterable {
            case lessThan, lessThanOrEqual, greaterThan, greaterThanOrEqual, equal, notEqual
            case matches, like, beginsWith, endsWith
            case isIn
            case contains = 99
            case between
        }

        /// `NSComparisonPredicateModifier`.
        public enum Modifier: Int, Sendable {
            case direct, all, any
        }

        public var left: MappingExpression
        public var `operator`: Operator
        public var right: MappingExpression
        public var modifier = Modifier.direct
        /// `[c]`
        public var isCaseInsensitive = false
        /// `[d]`
        public var isDiacriticInsensitive = false

        public init(
            _ left: MappingExpression, _ operator: Operator, _ right: MappingExpression, modifier: Modifier = .direct
        ) {
            self.left = left
            self.operator = `operator`
            self.right = right
            self.modifier = modifier
        }
    }
}

extension MappingExpression {
    /// Reads `NSExpression`'s format language (Predicate Programming Guide, "Predicate Format String Syntax").
    /// Throws `FormatError`.
    public init(format: String) throws(FormatError) {
        var parser = try FormatParser(format)
        self = try parser.wholeExpression()
    }

    /// `$source.path`.
    package static func source(_ path: String) -> MappingExpression { .keyPath(of: .variable("source"), path) }

    /// The objects that an entity mapping made of those that `path` leads to.
    package static func destinationInstances(of mapping: String, _ path: String) -> MappingExpression {
        .message(
            to: .variable("manager"), selector: "destinationInstancesForEntityMappingNamed:sourceInstances:",
            [.constant(.string(mapping)), source(path)])
    }

    /// The objects that whatever entity mapping made of those that `path` leads to.
    package static func destinationInstances(ofRelationship name: String, _ path: String) -> MappingExpression {
        .message(
            to: .variable("manager"), selector: "destinationInstancesForSourceRelationshipNamed:sourceInstances:",
            [.constant(.string(name)), source(path)])
    }
}

extension MappingPredicate {
    /// Reads `NSPredicate`'s format language. Throws `FormatError`.
    public init(format: String) throws(FormatError) {
        var parser = try FormatParser(format)
        self = try parser.wholePredicate()
    }
}

/// Why a text is no expression or predicate.
public struct FormatError: Error, Equatable, Sendable {
    public let message: String
    /// Characters before the place, from 0.
    public let offset: Int

    init(_ message: String, at offset: Int) {
        self.message = message
        self.offset = offset
    }
}

extension FormatError: CustomStringConvertible {
    public var description: String { "\(message) (at character \(offset + 1))" }
}
