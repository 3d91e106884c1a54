import FoundationEssentials
import Glibc
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
    /// The length of a text in UTF-16 units, as of an `NSString`, or of data in bytes.
    case length = "gs_length"

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
            (upper, { $0.uppercased() }), (lower, { $0.lowercased() }), (capitalized, TextFolding.capitalized),
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
        try store.addFunction(length.rawValue, arguments: 1) { values in
            if case .blob(let bytes) = values[0] { return .integer(Int64(bytes.count)) }
            return values[0].string.map { .integer(Int64($0.utf16.count)) } ?? .null
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

    /// Folds case (1), accents (2) or both (3).
    static func fold(_ text: String, _ options: Int) -> String {
        TextFolding.fold(text, ignoringCase: options & 1 != 0, ignoringAccents: options & 2 != 0)
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
        for function in [like, matches] {
            let patterns = PatternCache(function)
            try store.addFunction(function.rawValue, arguments: 3) { values in
                guard let text = values[0].string, let pattern = values[1].string else { return .null }
                return .integer(try patterns.matches(text, pattern, values[2].number) ? 1 : 0)
            }
        }
    }

    /// Compiles a pattern of `LIKE` or `MATCHES` whose case and accents are folded as those of the texts are. Throws
    /// `PatternError`.
    func pattern(_ pattern: String, _ options: Int) throws(PatternError) -> RegularExpression {
        if self == .like { return try RegularExpression(like: pattern) { Self.fold($0, options) } }
        var isEscaped = false
        return try RegularExpression(
            pattern.map { character in
                // The case of an escape such as `\S` matters.
                defer { isEscaped = character == "\\" && !isEscaped }
                return isEscaped ? String(character) : Self.fold(String(character), options)
            }.joined())
    }

    /// Keeps the last regular expression for the next row.
    private final class PatternCache {
        private let function: SQLFunction
        private var last: (pattern: String, options: Int, expression: RegularExpression)?

        init(_ function: SQLFunction) { self.function = function }

        func matches(_ text: String, _ pattern: String, _ options: Int) throws(PatternError) -> Bool {
            do throws(PatternError) {
                return try expression(pattern, options).matches(SQLFunction.fold(text, options))
            } catch {
                throw PatternError(description: "the pattern “\(pattern)” can't be used: \(error)")
            }
        }

        private func expression(_ pattern: String, _ options: Int) throws(PatternError) -> RegularExpression {
            if let last, last.pattern.utf8.elementsEqual(pattern.utf8), last.options == options {
                return last.expression
            }
            let expression = try function.pattern(pattern, options)
            last = (pattern, options, expression)
            return expression
        }
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
