import ManagedObjectModels
import PropertyLists
import Testing

@testable import MappingModels

/// The format language, and archives of its expressions.
struct MappingExpressionTests {
    /// Expressions and their normalized form; nil if it is the same.
    private static let expressions: [(String, String?)] = [
        ("$source.color", nil), ("$source.owner.name", nil), ("3", nil), ("-3", nil), ("2.5", nil), ("0x10", "16"),
        ("1e3", "1000.0"), ("'it\\'s'", "\"it's\""), ("\"a\\\"b\\\\c\"", nil), ("nil", nil), ("NULL", "nil"),
        ("YES", nil), ("FALSE", "NO"), ("SELF", nil), ("$source.a + $source.b * 2", nil),
        ("($source.a + $source.b) * 2", nil), ("a - (b - c)", nil), ("a - b - c", nil), ("(a - b) - c", "a - b - c"),
        ("a / (b * c)", nil), ("2 ** 3 ** 2", nil), ("(2 ** 3) ** 2", nil), ("-a", "0 - a"),
        ("sum($source.parts.price)", "sum:($source.parts.price)"), ("now()", nil),
        ("$source.parts.@count", nil), ("$source.countries.@distinctUnionOfSets.moods", nil),
        ("{1, 2, \"three\"}", nil), ("CAST($source.n, \"NSString\")", nil),
        ("CAST(12.5, 'NSDate')", "CAST(12.5, \"NSDate\")"), ("CAST(\"0.1\", \"NSDecimalNumber\")", nil),
        ("TERNARY($source.n > 3, \"many\", \"few\")", nil), ("$source.parts[FIRST]", nil), ("$source.parts[2]", nil),
        ("SUBQUERY($source.parts, $p, $p.price > 3 AND $p.name != nil).@count", nil),
        ("FUNCTION($source, 'valueForKey:', 'name')", "$source.name"),
        ("FUNCTION($entityPolicy, \"convert:\", $source.name)", nil),
        (
            "FUNCTION($manager, \"destinationInstancesForEntityMappingNamed:sourceInstances:\", \"AToB\", $source.b)",
            nil
        ),
        ("#in", nil), ("lowercase:($source.name)", nil), ("add:to:(1, 2)", "1 + 2"),
    ]

    @Test(arguments: expressions)
    func readsAndWrites(text: String, written: String?) throws {
        let expression = try MappingExpression(format: text)
        #expect(expression.description == written ?? text)
        #expect(try MappingExpression(format: expression.description) == expression)
        let archived = try roundTripped(expression)
        #expect(archived == expression)
    }

    private func roundTripped(_ expression: MappingExpression) throws -> MappingExpression {
        var builder = KeyedArchiveBuilder()
        let root = try #require(builder.expression(expression).uid)
        return try ArchivedExpressionReader.expression(builder.archive(root: root))
    }

    private static let predicates: [(String, String?)] = [
        ("TRUEPREDICATE", nil), ("name == \"x\"", nil), ("name = 'x' && age>=3", "name == \"x\" AND age >= 3"),
        ("a == 1 OR b == 2 AND NOT c == 3", "a == 1 OR (b == 2 AND NOT c == 3)"),
        ("(a == 1 OR b == 2) AND c <> 3", "(a == 1 OR b == 2) AND c != 3"), ("name BEGINSWITH[cd] \"x\"", nil),
        ("name LIKE \"*x?\"", nil), ("name MATCHES \"a.*\"", nil), ("ANY tags.name == \"x\"", nil),
        ("ALL tags.n > 1", nil), ("NONE tags.n > 1", "NOT ANY tags.n > 1"), ("n BETWEEN {1, 3}", nil),
        ("n IN {1, 2}", nil), ("$source.a + 1 == (2 + 3) * 4", nil), ("((a)) == 1", "a == 1"),
        ("NOT (a == 1)", "NOT a == 1"), ("not (a == 1 or b == 2)", "NOT (a == 1 OR b == 2)"),
        ("isPrivate == YES", nil), ("owner == nil", nil), ("tags.@count > 0", nil),
        ("name contains 'x'", "name CONTAINS \"x\""), ("SELF.name != nil", "name != nil"),
    ]

    @Test(arguments: predicates)
    func readsAndWritesConditions(text: String, written: String?) throws {
        let predicate = try MappingPredicate(format: text)
        #expect(predicate.description == written ?? text)
        #expect(try MappingPredicate(format: predicate.description) == predicate)
        let expression = MappingExpression.conditional(predicate, .constant(.integer(1)), .constant(nil))
        #expect(try roundTripped(expression) == expression)
    }

    @Test(arguments: [
        "", "a ==", "== 3", "a == %@", "a b", "(a == 1", "a == 'x", "CAST(1)", "FUNCTION($manager)",
        "SUBQUERY(a, b, c == 1)",
        "a == 1 AND", "a ! b", "a == §", "$", "a.", "name LIKE[z] 'x'", "12abc == 1", "a := 3",
    ])
    func refusesMalformedPredicates(text: String) {
        #expect(throws: FormatError.self) { () throws in _ = try MappingPredicate(format: text) }
    }

    @Test func reportsTheOffsetOfAnError() {
        do {
            _ = try MappingPredicate(format: "name == %@")
            Issue.record("the predicate was accepted")
        } catch { #expect(error.offset == 8) }
    }

    /// A parenthesis is tried as a predicate and as an expression, which must not take exponential time.
    @Test func boundsDepthAndBacktracking() {
        let deep = String(repeating: "(", count: 55) + "a" + String(repeating: ")", count: 55)
        _ = try? MappingPredicate(format: deep + " == 1")
        let tooDeep = String(repeating: "(", count: 5000) + "a"
        #expect(throws: FormatError.self) { () throws in _ = try MappingPredicate(format: tooDeep) }
        let minus = String(repeating: "-", count: 50_000) + "1"
        #expect(throws: FormatError.self) { () throws in _ = try MappingExpression(format: minus) }
        let not = String(repeating: "NOT ", count: 20_000) + "a == 1"
        #expect(throws: FormatError.self) { () throws in _ = try MappingPredicate(format: not) }
    }
}
