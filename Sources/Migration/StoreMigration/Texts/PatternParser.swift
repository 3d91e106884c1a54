/// A parser of ICU's regular expressions (https://unicode-org.github.io/icu/userguide/strings/regexp.html), which
/// NSPredicate's MATCHES takes. It rejects what the matcher doesn't read exactly as ICU does.
struct PatternParser {
    private static let maximumLength = 10_000
    static let maximumDepth = 50

    private struct Flags {
        /// `.` matches line terminators (s), and `^` and `$` match at each line (m).
        var isDotAll = false
        var isMultiline = false
    }

    let scalars: [Unicode.Scalar]
    var index = 0
    private var flags = Flags()
    var depth = 0
    private(set) var captureCount = 0
    private var names: [String: Int] = [:]
    /// The groups that end before the present position.
    private var closedGroups: Set<Int> = []
    private var isInLookbehind = false

    /// Parses a whole pattern.
    static func parse(_ pattern: String) throws(PatternError) -> (root: PatternNode, captureCount: Int) {
        let scalars = Array(pattern.unicodeScalars)
        guard scalars.count <= maximumLength else { throw PatternError(description: "it is too long") }
        var parser = PatternParser(scalars)
        let root = try parser.alternatives()
        guard parser.index == scalars.count else { throw parser.error("“)” closes nothing") }
        return (root, parser.captureCount)
    }

    private init(_ scalars: [Unicode.Scalar]) { self.scalars = scalars }

    var next: Unicode.Scalar? { index < scalars.count ? scalars[index] : nil }

    func error(_ message: String) -> PatternError {
        PatternError(description: "\(message) (at character \(min(index, scalars.count) + 1))")
    }

    func begins(_ text: String) -> Bool { scalars[index...].starts(with: text.unicodeScalars) }

    mutating func accept(_ text: String) -> Bool {
        guard begins(text) else { return false }
        index += text.unicodeScalars.count
        return true
    }

    mutating func take() throws(PatternError) -> Unicode.Scalar {
        guard let scalar = next else { throw error("it ends too early") }
        index += 1
        return scalar
    }

    // MARK: Terms

    private mutating func alternatives() throws(PatternError) -> PatternNode {
        depth += 1
        defer { depth -= 1 }
        guard depth <= Self.maximumDepth else { throw error("it is nested too deeply") }
        // A flag set inside a group holds to the group's end.
        let outer = flags
        defer { flags = outer }
        var all = [try sequence()]
        while accept("|") { all.append(try sequence()) }
        return all.count == 1 ? all[0] : .alternatives(all)
    }

    private mutating func sequence() throws(PatternError) -> PatternNode {
        var parts: [PatternNode] = []
        while let scalar = next, scalar != "|", scalar != ")" {
            if accept("\\Q") {
                while index < scalars.count, !begins("\\E") { parts.append(.scalars(.scalar(try take()))) }
                guard accept("\\E") else { throw error("“\\Q” needs “\\E”") }
                if let scalar = next, "*+?{".unicodeScalars.contains(scalar) {
                    throw error("a repetition of quoted text can't be used")
                }
                continue
            }
            let (atom, isRepeatable) = try atom()
            parts.append(try repeated(atom, isRepeatable))
        }
        return parts.count == 1 ? parts[0] : .sequence(parts)
    }

    private mutating func atom() throws(PatternError) -> (PatternNode, isRepeatable: Bool) {
        let scalar = try take()
        switch scalar {
        case "(": return try group()
        case "[": return (.scalars(try set()), true)
        case "\\": return try escape()
        case ".": return (flags.isDotAll ? .any : .scalars(.inverted(.lineTerminators)), true)
        case "^": return (.assertion(flags.isMultiline ? .lineStart : .textStart), false)
        case "$": return (.assertion(flags.isMultiline ? .lineEnd : .textEnd), false)
        case "*", "+", "?", "{", "}":
            index -= 1
            throw error("“\(scalar)” has nothing to refer to: write “\\\(scalar)” for the character")
        default: return (.scalars(.scalar(scalar)), true)
        }
    }

    private mutating func repeated(_ atom: PatternNode, _ isRepeatable: Bool) throws(PatternError) -> PatternNode {
        let minimum: Int
        var maximum: Int?
        switch next {
        case "*": minimum = 0
        case "+": minimum = 1
        case "?": (minimum, maximum) = (0, 1)
        case "{":
            index += 1
            minimum = try number()
            maximum = minimum
            if accept(",") { maximum = next == "}" ? nil : try number() }
            guard next == "}" else { throw error("“{” needs “}”") }
            guard maximum ?? minimum >= minimum else {
                throw error("the repetition's maximum is less than its minimum")
            }
        default: return atom
        }
        guard isRepeatable else { throw error("an assertion can't be repeated") }
        index += 1
        let start = index
        let kind: PatternNode.Repetition = accept("?") ? .lazy : accept("+") ? .possessive : .greedy
        if let scalar = next, "*+?{".unicodeScalars.contains(scalar) { throw error("a repetition can't be repeated") }
        guard kind == .greedy || maximum != nil || !atom.canBeEmpty else {
            index = start
            throw error("“\(scalars[start])” can't be used to repeat something that may be empty")
        }
        return .repeated(atom, minimum: minimum, maximum: maximum, kind)
    }

    private mutating func number() throws(PatternError) -> Int {
        var value = 0
        let start = index
        while let scalar = next, ("0"..."9").contains(scalar) {
            value = value * 10 + Int(scalar.value - 48)
            guard value <= 1000 else { throw error("a repetition of more than 1000 can't be used") }
            index += 1
        }
        guard index > start else { throw error("a number is missing") }
        return value
    }

    // MARK: Groups

    private mutating func group() throws(PatternError) -> (PatternNode, isRepeatable: Bool) {
        if !accept("?") {
            captureCount += 1
            let number = captureCount
            guard !isInLookbehind else { throw error("a capturing group can't be used in a lookbehind") }
            return (try capture(number), true)
        }
        if accept("#") {
            while try take() != ")" {}
            return (.empty, false)
        }
        if accept(":") { return (try closed(), true) }
        if accept(">") { return (.atomic(try closed()), true) }
        for isAhead in [true, false] {
            for isNegative in [true, false] where accept((isAhead ? "" : "<") + (isNegative ? "!" : "=")) {
                return (try look(isAhead: isAhead, isNegative: isNegative), false)
            }
        }
        if accept("<") {
            let name = try name()
            guard names[name] == nil else { throw error("two groups have the name “\(name)”") }
            guard !isInLookbehind else { throw error("a capturing group can't be used in a lookbehind") }
            captureCount += 1
            let number = captureCount
            names[name] = number
            return (try capture(number), true)
        }
        let outer = flags
        try readFlags()
        if accept(")") { return (.empty, false) }
        guard accept(":") else { throw error("this kind of group can't be used") }
        let content = try closed()
        flags = outer
        return (content, true)
    }

    private mutating func capture(_ number: Int) throws(PatternError) -> PatternNode {
        let content = try closed()
        closedGroups.insert(number)
        return .capture(content, number: number)
    }

    private mutating func closed() throws(PatternError) -> PatternNode {
        let content = try alternatives()
        guard accept(")") else { throw error("“(” needs “)”") }
        return content
    }

    private mutating func look(isAhead: Bool, isNegative: Bool) throws(PatternError) -> PatternNode {
        let wasInLookbehind = isInLookbehind
        if !isAhead { isInLookbehind = true }
        defer { isInLookbehind = wasInLookbehind }
        let content = try closed()
        guard isAhead || content.isBounded else {
            throw error("a lookbehind of unlimited length, or with a lazy or possessive part, can't be used")
        }
        return .look(content, isAhead: isAhead, isNegative: isNegative)
    }

    private mutating func readFlags() throws(PatternError) {
        var isSet = true
        while let scalar = next, scalar != ")", scalar != ":" {
            switch scalar {
            case "-" where isSet: isSet = false
            case "s": flags.isDotAll = isSet
            case "m": flags.isMultiline = isSet
            case "i": throw error("the flag i can't be used: write MATCHES[c]")
            default: throw error("the flag “\(scalar)” can't be used")
            }
            index += 1
        }
    }

    private mutating func name() throws(PatternError) -> String {
        var name = ""
        while let scalar = next, scalar != ">" {
            guard scalar.isASCII, scalar.properties.isAlphabetic || !name.isEmpty && ("0"..."9").contains(scalar) else {
                throw error("a group's name has letters and digits only")
            }
            name.unicodeScalars.append(scalar)
            index += 1
        }
        guard accept(">"), !name.isEmpty else { throw error("a group's name is missing") }
        return name
    }

    // MARK: Escapes

    private mutating func escape() throws(PatternError) -> (PatternNode, isRepeatable: Bool) {
        switch try take() {
        case "A": return (.assertion(.textStart), false)
        case "Z": return (.assertion(.textEnd), false)
        case "z": return (.assertion(.textEndExactly), false)
        case "b": return (.assertion(.wordBoundary), false)
        case "B": return (.assertion(.noWordBoundary), false)
        case "R": return (.lineBreak, true)
        case "k":
            guard accept("<") else { throw error("“\\k” needs a name") }
            let name = try name()
            return (try backreference(to: names[name]), true)
        case let digit where ("1"..."9").contains(digit):
            if let scalar = next, ("0"..."9").contains(scalar) {
                throw error("a reference to a group with two digits can't be used")
            }
            return (try backreference(to: Int(digit.value - 48)), true)
        default:
            index -= 1
            return (.scalars(try scalarEscape()), true)
        }
    }

    private func backreference(to number: Int?) throws(PatternError) -> PatternNode {
        guard let number, closedGroups.contains(number) else {
            throw error("a reference can only be to a group that ends before it")
        }
        return .backreference(number)
    }

    /// Reads an escape that stands for scalars, inside or outside of a set, after the backslash.
    mutating func scalarEscape() throws(PatternError) -> ScalarSet {
        let scalar = try take()
        switch scalar {
        case "d": return .digits
        case "D": return .inverted(.digits)
        case "s": return .whitespace
        case "S": return .inverted(.whitespace)
        case "w": return .wordCharacters
        case "W": return .inverted(.wordCharacters)
        case "h": return .horizontalSpace
        case "H": return .inverted(.horizontalSpace)
        case "v": return .lineTerminators
        case "V": return .inverted(.lineTerminators)
        case "p", "P":
            let set = try property()
            return scalar == "P" ? .inverted(set) : set
        case "a": return .scalar("\u{7}")
        case "e": return .scalar("\u{1B}")
        case "f": return .scalar("\u{C}")
        case "n": return .scalar("\n")
        case "r": return .scalar("\r")
        case "t": return .scalar("\t")
        case "u": return .scalar(try hexadecimal(4...4))
        case "U": return .scalar(try hexadecimal(8...8))
        case "x":
            guard accept("{") else { return .scalar(try hexadecimal(2...2)) }
            let found = try hexadecimal(1...6)
            guard accept("}") else { throw error("“{” needs “}”") }
            return .scalar(found)
        default:
            guard !scalar.properties.isAlphabetic, !("0"..."9").contains(scalar) else {
                index -= 1
                throw error("“\\\(scalar)” can't be used")
            }
            return .scalar(scalar)
        }
    }

    private mutating func hexadecimal(_ length: ClosedRange<Int>) throws(PatternError) -> Unicode.Scalar {
        var digits = ""
        while digits.count < length.upperBound, let scalar = next, scalar.properties.isASCIIHexDigit {
            digits.unicodeScalars.append(scalar)
            index += 1
        }
        guard digits.count >= length.lowerBound, let value = UInt32(digits, radix: 16),
            let scalar = Unicode.Scalar(value)
        else { throw error("a character's number is wrong") }
        return scalar
    }

    private mutating func property() throws(PatternError) -> ScalarSet {
        guard accept("{") else { throw error("“{” is missing") }
        var name = ""
        while let scalar = next, scalar != "}" {
            name.unicodeScalars.append(scalar)
            index += 1
        }
        guard accept("}") else { throw error("“{” needs “}”") }
        guard let set = ScalarSet.named(name) else {
            throw error("the property “\(name)” can't be used: name a general category, as in \\p{Lu}")
        }
        return set
    }
}

extension PatternNode {
    /// True if the node can be in a lookbehind: it matches a limited length, and tries its ways in any order.
    fileprivate var isBounded: Bool {
        switch self {
        case .empty, .scalars, .any, .lineBreak, .assertion: true
        case .backreference, .atomic, .look: false
        case .sequence(let parts), .alternatives(let parts): parts.allSatisfy(\.isBounded)
        case .capture(let part, _): part.isBounded
        case .repeated(let part, _, let maximum, let kind): maximum != nil && kind == .greedy && part.isBounded
        }
    }

    /// True if the node may match without a character.
    fileprivate var canBeEmpty: Bool {
        switch self {
        case .scalars, .any, .lineBreak: false
        case .empty, .look, .assertion, .backreference: true
        case .sequence(let parts): parts.allSatisfy(\.canBeEmpty)
        case .alternatives(let parts): parts.contains(where: \.canBeEmpty)
        case .capture(let part, _), .atomic(let part): part.canBeEmpty
        case .repeated(let part, let minimum, _, _): minimum == 0 || part.canBeEmpty
        }
    }
}
