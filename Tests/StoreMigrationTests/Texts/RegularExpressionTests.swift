// The oracle: Foundation's regular expressions are ICU's.
import Foundation
import TestSupport
import Testing

@testable import StoreMigration

@Suite struct RegularExpressionTests {
    /// Returns ICU's answer; nil if it rejects the pattern.
    static func oracle(_ pattern: String) -> ((String) -> Bool)? {
        guard let expression = try? NSRegularExpression(pattern: "\\A(?:" + pattern + ")\\z") else { return nil }
        return { text in
            expression.firstMatch(in: text, range: NSRange(text.startIndex..., in: text)) != nil
        }
    }

    static let usual = [
        "", "a", "a.*", "[a-m]nn", "^a", "^a.*z$", "[A-Z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,4}",
        "[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*@[\\w-.]+", "\\d{4}-\\d{2}-\\d{2}",
        "https?://[^/]+(/.*)?", "(\\w)\\1.*", "(?<first>\\w)\\w*\\k<first>", "(?=.*\\d)(?=.*[a-z]).{4,8}", "(?!x).*",
        ".*(?<=ab)c", ".*(?<!ab)c", "(?>a+)b", "a++b", "a*+a", "a{2,3}?b", "[a-z&&[^aeiou]]+", "[a-z--[aeiou]]+",
        "[[a-c][x-z]]+", "[]a]+", "[^]a]+", "\\p{Lu}\\p{Ll}*", "\\P{L}+", "[[:alpha:]]+", "[\\p{L}\\d_-]*",
        "\\bfoo\\b.*", ".*\\Bo", "\\Qa.b\\E", "\\x{e9}t\\u00e9", "(?s).*", "(?s:a.b)", "(?m)a$\\R^b", "a|b|",
        "(a|ab)(c|bcd)(d*)",
        "(a*)*", "(a|b)*c", "(|a)+", "\\R", "\\h+\\v", "a(?#comment)b", "\\.\\*\\[\\]\\{\\}", "(?:a{0,2}){3}",
    ]
    static let texts = [
        "", "a", "A", "ann", "Ann", "abz", "a\nb", "a\r\nb", "ab", "aab", "aaab", "abc", "abcd", "xbc", "foo bar",
        "foo",
        "fo", "a.b", "été", "e\u{301}te\u{301}", "2024-01-31", "john.doe@example.com", "http://a.b/c", "bob", "abba",
        "xyz",
        "bcd", "]", "]a", "Éric", "ÉRIC", "12_-é", "\r\n", "\n", "\u{2028}", " \n", ".*[]{}", "pass1", "😀", "a1b2",
    ]

    @Test(arguments: usual) func matchesAsICUDoes(_ pattern: String) throws {
        let expected = try #require(Self.oracle(pattern))
        let expression = try RegularExpression(pattern)
        for text in Self.texts {
            #expect(try expression.matches(text) == expected(text), "\(text.debugDescription)")
        }
    }

    /// What ICU may read in another way is an error, as is what it rejects.
    @Test(arguments: [
        "(?i)a", "(?x) a", "(?w)a", "\\X", "\\N{LATIN SMALL LETTER A}", "\\G", "\\p{Latin}", "\\p{Script=Greek}",
        "\\cA", "\\y",
        "[a\\b]", "a**", "^*", "(?=a)*", "(?:)*?", "(a?)*+b", "(?<=a+)b", "(?<=(a))b", "(?<=a?+)b", "(\\1a)", "\\1(a)",
        "[[a]-[b]]", "[[a]&[b]]", "[a-\\d]", "[z-a]", "[]", "[^]", "[a", "(a", "a)", "a|)", "*", "a{2", "a{3,2}",
        "a{,3}",
        "a{1001}", "\\", "\\Qa", "\\x{110000}", "\\u12", "(?<a>b)(?<a>c)", "\\k<a>", "(?", "(?'a'b)", "[:nothing:]",
        String(repeating: "(", count: 60) + String(repeating: ")", count: 60), "((ab){1000}){1000}",
    ]) func refusesWhatICUMayReadInAnotherWay(_ pattern: String) {
        #expect(throws: PatternError.self) { _ = try RegularExpression(pattern) }
    }

    @Test func matchesGeneratedPatternsAsICUDoes() {
        var generator = PatternGenerator(seed: 1)
        var pairs = 0
        var matches = 0
        for _ in 0..<6000 {
            let pattern = generator.pattern()
            guard let expression = try? RegularExpression(pattern) else { continue }
            guard let expected = Self.oracle(pattern) else {
                Issue.record("ICU refuses \(pattern.debugDescription)")
                continue
            }
            for _ in 0..<6 {
                let text = generator.text()
                let isMatch = expected(text)
                #expect(
                    (try? expression.matches(text)) == isMatch, "\(pattern.debugDescription) \(text.debugDescription)")
                pairs += 1
                if isMatch { matches += 1 }
            }
        }
        #expect(pairs > 20_000)
        #expect(matches > 1000)
    }

    /// The oracle is what `gs_like` and `gs_matches` did with Foundation.
    @Test func comparesTextsAsFoundationDoes() throws {
        var generator = PatternGenerator(seed: 2)
        for _ in 0..<3000 {
            let options = generator.pick([0, 1, 2, 3])
            let pattern = generator.pattern()
            let like = generator.likePattern()
            for (function, pattern, old) in [
                (SQLFunction.matches, pattern, Self.folded(pattern, options)),
                (.like, like, Self.folded(Self.expression(like: like), options)),
            ] {
                guard let expression = try? function.pattern(pattern, options), let expected = Self.oracle(old)
                else { continue }
                for _ in 0..<4 {
                    let text = generator.text()
                    #expect(
                        try expression.matches(SQLFunction.fold(text, options)) == expected(Self.fold(text, options)),
                        "\(function) \(options) \(pattern.debugDescription) \(text.debugDescription)")
                }
            }
        }
    }

    @Test func endsAMatchThatTakesTooManySteps() throws {
        let text = String(repeating: "a", count: 40) + "b"
        // The default takes seconds in a debug build.
        let steps = PatternMatcher.maximumSteps / 100
        #expect(throws: PatternError.self) { try RegularExpression("(a+)+").matches(text, steps: steps) }
        #expect(try RegularExpression("(a+)+b").matches(text, steps: steps))
    }

    @Test func matchesLongTexts() throws {
        let text = String(repeating: "ab\r\n", count: 100_000)
        #expect(try RegularExpression("(?s).*b\\R").matches(text))
        #expect(try RegularExpression("(ab\\r\\n)*+").matches(text))
        #expect(try RegularExpression(like: "*b?") { $0 }.matches(text))
        #expect(try !RegularExpression(like: "*a?") { $0 }.matches(text))
    }

    // MARK: Foundation

    private static func fold(_ text: String, _ options: Int) -> String {
        var folding: String.CompareOptions = []
        if options & 1 != 0 { folding.insert(.caseInsensitive) }
        if options & 2 != 0 { folding.insert(.diacriticInsensitive) }
        return text.folding(options: folding, locale: nil)
    }

    private static func folded(_ pattern: String, _ options: Int) -> String {
        guard options != 0 else { return pattern }
        var isEscaped = false
        return pattern.map { character in
            defer { isEscaped = character == "\\" && !isEscaped }
            return isEscaped ? String(character) : fold(String(character), options)
        }.joined()
    }

    private static func expression(like pattern: String) -> String {
        pattern.map { character in
            switch character {
            case "*": "(?s:.*)"
            case "?": "(?s:.)"
            default: NSRegularExpression.escapedPattern(for: String(character))
            }
        }.joined()
    }
}

/// A generator of regular expressions and texts with few characters, so that many match.
private struct PatternGenerator {
    private var generator: SeededGenerator

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    mutating func pick<Element>(_ elements: [Element]) -> Element {
        elements[Int.random(in: elements.indices, using: &generator)]
    }

    private mutating func isLucky(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &generator) < percent }

    private mutating func joined(_ range: ClosedRange<Int>, _ part: (inout PatternGenerator) -> String) -> String {
        (0..<Int.random(in: range, using: &generator)).map { _ in part(&self) }.joined()
    }

    mutating func text() -> String {
        joined(0...6) { $0.isLucky(70) ? $0.pick(["a", "b", "c", "1", " "]) : $0.pick(Self.unusual) }
    }

    mutating func likePattern() -> String { joined(0...5) { $0.isLucky(30) ? $0.pick(["*", "?"]) : $0.literal() } }

    mutating func pattern(depth: Int = 3) -> String {
        isLucky(25) ? sequence(depth) + "|" + sequence(depth) : sequence(depth)
    }

    private mutating func sequence(_ depth: Int) -> String {
        joined(0...4) { $0.atom(depth) + ($0.isLucky(35) ? $0.repetition() : "") }
    }

    private mutating func repetition() -> String {
        pick(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}", "{0}"]) + (isLucky(25) ? pick(["?", "+"]) : "")
    }

    private mutating func atom(_ depth: Int) -> String {
        switch Int.random(in: 0..<18, using: &generator) {
        case 0...5: literal()
        case 6, 7: "."
        case 8, 9: pick(Self.escapes)
        case 10, 11: set(1)
        case 12 where depth > 0: "(" + pattern(depth: depth - 1) + ")"
        case 13 where depth > 0: "(?:" + pattern(depth: depth - 1) + ")"
        case 14 where depth > 0: pick(["(?=", "(?!", "(?<=", "(?<!", "(?>"]) + pattern(depth: depth - 1) + ")"
        case 15: pick(["^", "$", "\\b", "\\B", "\\A", "\\Z", "\\z"])
        case 16: pick(Self.constructs)
        case 17 where depth > 0: "(?<x>" + pattern(depth: depth - 1) + ")"
        default: literal()
        }
    }

    private mutating func literal() -> String { isLucky(75) ? pick(["a", "b", "c", "1", " "]) : pick(Self.literals) }

    private mutating func set(_ depth: Int) -> String {
        var set = "[" + (isLucky(25) ? "^" : "") + (isLucky(5) ? "]" : "") + (isLucky(8) ? "-" : "")
        set += joined(1...3) { $0.member(depth) }
        if depth > 0, isLucky(20) { set += pick(["&&", "--", "&", "-"]) + (isLucky(60) ? self.set(0) : member(0)) }
        return set + (isLucky(8) ? "-" : "") + "]"
    }

    private mutating func member(_ depth: Int) -> String {
        switch Int.random(in: 0..<12, using: &generator) {
        case 0...4: literal()
        case 5: "a-c"
        case 6:
            pick(["A-Z", "0-9", "é-ü", "\\u0061-\\x63", "\\t-\\r", " -~", "+-.", "\\w-.", "a-c-1", "\\d-a-c", "-a-c"])
        case 7, 8: pick(Self.escapes)
        case 9: pick(["[:alpha:]", "[:digit:]", "[:^space:]", "[:upper:]", "[:punct:]", "[:alnum:]", "[:xdigit:]"])
        case 10 where depth > 0: set(depth - 1)
        default: pick(Self.setMarks)
        }
    }

    private static let unusual = [
        "A", "B", "é", "É", "e\u{301}", "ß", "2", "_", "-", "\n", "\r", "\r\n", "\u{2028}", "\u{85}", "\u{B}", "\t",
        "\u{301}", "\u{200D}", "😀", "中", "\u{AD}", "٣", ".", "]", "}", "&", "^", "$", "\u{1F468}\u{200D}\u{1F469}",
        "\u{A0}", "ﬁ", "Ω", "ж",
    ]
    private static let literals = [
        "A", "é", "É", "ß", "2", "_", "-", "\n", "😀", "中", "\u{301}", "٣", "=", "!", ":", "#", ",", "<", ">", "&", "~",
        "@", "%", "'", "\"", "/", ";",
    ]
    private static let escapes = [
        "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\h", "\\H", "\\v", "\\V", "\\p{Lu}", "\\p{L}", "\\P{L}",
        "\\p{Alphabetic}", "\\p{Letter}", "\\p{punct}", "\\p{S}", "\\p{Z}", "\\p{Cc}", "\\p{Cf}", "\\n", "\\r", "\\t",
        "\\u0061", "\\x41", "\\x{e9}", "\\U0001F600", "\\.", "\\\\", "\\-", "\\]", "\\[", "\\&", "\\^", "\\$", "\\ ",
        "\\{", "\\}", "\\a", "\\e", "\\f", "\\p{alnum}", "\\p{space}", "\\p{Lowercase}", "\\p{xdigit}", "\\p{ASCII}",
    ]
    private static let constructs = [
        "\\1", "\\2", "\\R", "(?s)", "(?s:.*)", "(?s:.)", "(?s:.+a)", "(?m)", "(?-s)", "(?sm:.$)", "(?#c)", "\\Qa.b\\E",
        "(?<n>a|b)", "\\k<n>", "(?s-m)",
    ]
    private static let setMarks = [
        "-", "^", "&", "$", "]", "{", "}", "(", ")", "*", "+", "?", ".", "|", "--", "&&", "[", ":", "-a", "a-",
    ]
}
