import Foundation
import SQLiteStore

/// The SQL functions that compiled expressions need and SQLite lacks: case and accent folding, patterns, UUIDs,
/// mathematics.
enum SQLFunction: String {
    case upper = "gs_upper"
    case lower = "gs_lower"
    case capitalized = "gs_capitalized"
    case canonical = "gs_canonical"
    /// Folds case (1), accents (2) or both (3).
    case fold = "gs_fold"
    /// `LIKE`: `*` matches any text, `?` one character.
    case like = "gs_like"
    /// `MATCHES`: a regular expression matches the whole text.
    case matches = "gs_matches"
    case uuid = "gs_uuid"
    case uuidText = "gs_uuid_text"
    case truth = "gs_truth"

    /// Registers all functions on the connection.
    static func register(_ store: SQLiteConnection) throws {
        try addTexts(store)
        try addNumbers(store)
        try addPatterns(store)
        try store.addFunction(uuid.rawValue, arguments: 1) { values in
            guard let uuid = values[0].string.flatMap(UUID.init(uuidString:)) else { return .null }
            return .blob(withUnsafeBytes(of: uuid.uuid) { Array($0) })
        }
        try store.addFunction(uuidText.rawValue, arguments: 1) { values in
            guard case .blob(let bytes) = values[0], let uuid = UUID(bytes: bytes) else { return .null }
            return .text(uuid.uuidString)
        }
    }

    private static func addTexts(_ store: SQLiteConnection) throws {
        let functions: [(SQLFunction, (String) -> String)] = [
            (upper, { $0.uppercased() }), (lower, { $0.lowercased() }), (capitalized, { $0.capitalized }),
            (canonical, { fold($0, 3) }),
        ]
        for (function, body) in functions {
            try store.addFunction(function.rawValue, arguments: 1) { values in
                values[0].string.map { .text(body($0)) } ?? .null
            }
        }
        try store.addFunction(fold.rawValue, arguments: 2) { values in
            guard case .text(let text) = values[0] else { return values[0] }
            return .text(fold(text, values[1].number))
        }
        // `-[NSString boolValue]`: Y, y, T, t or a digit from 1 to 9, after white space, a sign and zeros.
        try store.addFunction(truth.rawValue, arguments: 1) { values in
            guard case .text(let text) = values[0] else {
                return values[0] == .null ? .null : .integer(values[0].isZero ? 0 : 1)
            }
            let first = text.drop { $0.isWhitespace || "+-0".contains($0) }.first
            return .integer(first.map { "YyTt123456789".contains($0) } == true ? 1 : 0)
        }
    }

    static func fold(_ text: String, _ options: Int) -> String {
        var folding: String.CompareOptions = []
        if options & 1 != 0 { folding.insert(.caseInsensitive) }
        if options & 2 != 0 { folding.insert(.diacriticInsensitive) }
        return text.folding(options: folding, locale: nil)
    }

    private static func addNumbers(_ store: SQLiteConnection) throws {
        let functions: [(String, (Double) -> Double)] = [
            ("gs_sqrt", { $0.squareRoot() }), ("gs_ln", { log($0) }), ("gs_log", { log10($0) }),
            ("gs_exp", { exp($0) }),
            ("gs_floor", { $0.rounded(.down) }), ("gs_ceiling", { $0.rounded(.up) }),
            ("gs_trunc", { $0.rounded(.towardZero) }),
        ]
        for (name, body) in functions {
            try store.addFunction(name, arguments: 1) { values in
                guard let number = values[0].double else { return .null }
                let result = body(number)
                return result.isNaN ? .null : .real(result)
            }
        }
        try store.addFunction("gs_power", arguments: 2) { values in
            guard let base = values[0].double, let exponent = values[1].double else { return .null }
            let result = pow(base, exponent)
            return result.isNaN ? .null : .real(result)
        }
    }

    private static func addPatterns(_ store: SQLiteConnection) throws {
        let patterns = PatternCache()
        try store.addFunction(like.rawValue, arguments: 3) { values in
            guard let text = values[0].string, let pattern = values[1].string else { return .null }
            let escaped = pattern.map { character in
                switch character {
                case "*": "(?s:.*)"
                case "?": "(?s:.)"
                default: NSRegularExpression.escapedPattern(for: String(character))
                }
            }
            return try patterns.matches(text, escaped.joined(), values[2].number)
        }
        try store.addFunction(matches.rawValue, arguments: 3) { values in
            guard let text = values[0].string, let pattern = values[1].string else { return .null }
            return try patterns.matches(text, pattern, values[2].number)
        }
    }

    /// Caches the last regular expression for the next row.
    private final class PatternCache {
        private var pattern: String?
        private var expression: NSRegularExpression?

        func matches(_ text: String, _ pattern: String, _ options: Int) throws -> SQLiteValue {
            if self.pattern != pattern {
                expression = try NSRegularExpression(pattern: "\\A(?:" + pattern + ")\\z")
                self.pattern = pattern
            }
            // Case and accents are folded in both the text and the pattern.
            let subject = options == 0 ? text : SQLFunction.fold(text, options)
            if options != 0 {
                expression = try NSRegularExpression(
                    pattern: "\\A(?:" + SQLFunction.foldPattern(pattern, options) + ")\\z")
            }
            let range = NSRange(subject.startIndex..., in: subject)
            return .integer(expression?.firstMatch(in: subject, range: range) == nil ? 0 : 1)
        }
    }

    /// Folds a pattern, except its escapes such as `\S`, whose case matters.
    private static func foldPattern(_ pattern: String, _ options: Int) -> String {
        var isEscaped = false
        return pattern.map { character in
            defer { isEscaped = character == "\\" && !isEscaped }
            return isEscaped ? String(character) : fold(String(character), options)
        }.joined()
    }
}

extension SQLiteValue {
    /// The text, or a number as text.
    var string: String? {
        switch self {
        case .text(let text): text
        case .integer(let number): "\(number)"
        case .real(let number): "\(number)"
        case .null, .blob: nil
        }
    }

    var double: Double? {
        switch self {
        case .integer(let number): Double(number)
        case .real(let number): number
        case .text(let text): Double(text)
        case .null, .blob: nil
        }
    }

    fileprivate var number: Int { if case .integer(let number) = self { Int(truncatingIfNeeded: number) } else { 0 } }

    fileprivate var isZero: Bool { double == 0 }
}
