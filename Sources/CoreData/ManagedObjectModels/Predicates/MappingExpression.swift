import FoundationEssentials

/// An expression that computes a value. Corresponds to `NSExpression`, as far as mapping models use it.
///
///     let expression = try MappingExpression(format: "$source.years + 1")
///     print(expression == .function("add:to:", [.keyPath(of: .variable("source"), "years"), .constant(.integer(1))]))
public indirect enum MappingExpression: Equatable, Sendable {
    /// A constant; nil for `nil`.
    case constant(AttributeValue?)
    /// The evaluated object, `SELF`.
    case evaluatedObject
    /// A variable's name without the `$`: `$source`, `$manager`, `$destination`, `$entityMapping`, `$entityPolicy`, or
    /// a subquery's variable.
    case variable(String)
    /// `operand.path`. The path may contain relationships, and operators such as `@count`.
    case keyPath(of: MappingExpression, String)
    /// `FUNCTION(receiver, "selector:", arguments…)`.
    case message(to: MappingExpression, selector: String, [MappingExpression])
    /// A function of the format language by its selector, such as `add:to:` for `+`.
    case function(String, [MappingExpression])
    /// A list, `{…}`.
    case aggregate([MappingExpression])
    /// `TERNARY(condition, first, second)`.
    case conditional(MappingPredicate, MappingExpression, MappingExpression)
    /// `SUBQUERY(collection, $variable, condition)`.
    case subquery(MappingExpression, variable: String, MappingPredicate)
    /// `FETCH(request, context, count only)`, the origin of objects in a compiled mapping model.
    case fetch(MappingExpression, in: MappingExpression, isCountOnly: Bool)
}

/// A condition. Corresponds to `NSPredicate`, as far as mapping models use it.
///
///     mapping.filter = try MappingPredicate(format: "kind == \"animal\" AND NOT name BEGINSWITH[cd] \"x\"")
public indirect enum MappingPredicate: Equatable, Sendable {
    /// `TRUEPREDICATE` or `FALSEPREDICATE`.
    case constant(Bool)
    /// A comparison of two expressions.
    case comparison(Comparison)
    /// True if all parts are true.
    case and([MappingPredicate])
    /// True if at least one part is true.
    case or([MappingPredicate])
    /// The negation of a condition.
    case not(MappingPredicate)

    /// A comparison of two expressions. Corresponds to `NSComparisonPredicate`.
    public struct Comparison: Equatable, Sendable {
        /// The operator, with the raw values of `NSPredicateOperatorType`.
        public enum Operator: Int, Sendable, CaseIterable {
            /// `<`, `<=`, `>`, `>=`, `==` and `!=`.
            case lessThan, lessThanOrEqual, greaterThan, greaterThanOrEqual, equal, notEqual
            /// `MATCHES`, `LIKE`, `BEGINSWITH` and `ENDSWITH`, for texts.
            case matches, like, beginsWith, endsWith
            /// `IN`: the left side is an element of the right one.
            case isIn
            /// `CONTAINS`: the right side is part of the left one.
            case contains = 99
            /// `BETWEEN`: the left side lies within the two values on the right.
            case between
        }

        /// The objects of a to-many key path that must meet the comparison, with the raw values of
        /// `NSComparisonPredicateModifier`.
        public enum Modifier: Int, Sendable {
            /// Compares the value itself, all elements (`ALL`), or any element (`ANY`).
            case direct, all, any
        }

        /// The left expression.
        public var left: MappingExpression
        /// The operator.
        public var `operator`: Operator
        /// The right expression.
        public var right: MappingExpression
        /// The quantifier: none, `ALL` or `ANY`.
        public var modifier = Modifier.direct
        /// True if the comparison ignores case, `[c]`.
        public var isCaseInsensitive = false
        /// True if the comparison ignores diacritics, `[d]`.
        public var isDiacriticInsensitive = false

        /// Creates a comparison that respects case and diacritics.
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
    /// Parses the format language of `NSExpression` (Predicate Programming Guide, "Predicate Format String Syntax").
    ///
    /// - Throws: ``FormatError`` if the text isn't an expression, or is too long or nested too deeply.
    public init(format: String) throws(FormatError) {
        var parser = try FormatParser(format)
        self = try parser.wholeExpression()
    }

    /// Returns the expression `$source.path`.
    package static func source(_ path: String) -> MappingExpression { .keyPath(of: .variable("source"), path) }

    /// Returns an expression for the objects that an entity mapping made from the older objects at `$source.path`.
    package static func destinationInstances(of mapping: String, _ path: String) -> MappingExpression {
        .message(
            to: .variable("manager"), selector: "destinationInstancesForEntityMappingNamed:sourceInstances:",
            [.constant(.string(mapping)), source(path)])
    }

    /// Returns an expression for the objects that any entity mapping made from the older objects at `$source.path`.
    package static func destinationInstances(ofRelationship name: String, _ path: String) -> MappingExpression {
        .message(
            to: .variable("manager"), selector: "destinationInstancesForSourceRelationshipNamed:sourceInstances:",
            [.constant(.string(name)), source(path)])
    }
}

extension MappingPredicate {
    /// Parses the format language of `NSPredicate`.
    ///
    /// - Throws: ``FormatError`` if the text isn't a condition, or is too long or nested too deeply.
    public init(format: String) throws(FormatError) {
        var parser = try FormatParser(format)
        self = try parser.wholePredicate()
    }
}

/// The reason a text can't be parsed as an expression or predicate.
public struct FormatError: LocalizedError, Equatable, Sendable {
    /// A description of the failure for a person.
    public let message: String
    /// The position of the failure, in characters from 0.
    public let offset: Int

    init(_ message: String, at offset: Int) {
        self.message = message
        self.offset = offset
    }
}

extension FormatError: CustomStringConvertible {
    public var description: String { "\(message) (at character \(offset + 1))" }
    /// The message and the position, as `localizedDescription`.
    public var errorDescription: String? { description }
}
