/// The sets of a regular expression, such as `[a-z&&[^aeiou]]`.
extension PatternParser {
    /// A part of a set.
    private struct Member {
        enum Kind {
            case scalar, range, escape, set
        }

        let set: ScalarSet
        let kind: Kind
    }

    /// Reads a set after its `[`.
    mutating func set() throws(PatternError) -> ScalarSet {
        depth += 1
        defer { depth -= 1 }
        guard depth <= Self.maximumDepth else { throw error("it is nested too deeply") }
        if accept(":") { return try posixSet() }
        let isInverted = accept("^")
        var result: ScalarSet?
        // True if what follows is removed from the result (`--`), false if it is intersected with it (`&&`).
        var isDifference = false
        var members: [Member] = []
        // A bracket at the start stands for itself.
        if accept("]") { members.append(Member(set: .scalar("]"), kind: .scalar)) }
        while !accept("]") {
            if begins("&&") || begins("--") {
                let isNextDifference = begins("--")
                index += 2
                guard !members.isEmpty, next != "]" else { throw error("an operator of sets has nothing to combine") }
                result = Self.combined(result, members, isDifference: isDifference)
                (members, isDifference) = ([], isNextDifference)
            }
            members.append(try member(after: members.last, isFirst: members.isEmpty && result == nil))
        }
        guard !members.isEmpty else { throw error("a set has no characters") }
        let all = Self.combined(result, members, isDifference: isDifference)
        return isInverted ? .inverted(all) : all
    }

    private static func combined(_ first: ScalarSet?, _ members: [Member], isDifference: Bool) -> ScalarSet {
        let second = ScalarSet.union(members.map(\.set))
        guard let first else { return second }
        return .intersection(first, isDifference ? .inverted(second) : second)
    }

    private mutating func posixSet() throws(PatternError) -> ScalarSet {
        let isInverted = accept("^")
        var name = ""
        while let scalar = next, scalar != ":" {
            name.unicodeScalars.append(scalar)
            index += 1
        }
        guard accept(":]"), let set = ScalarSet.named(name) else { throw error("the set “[:\(name):]” can't be used") }
        return isInverted ? .inverted(set) : set
    }

    private mutating func member(after previous: Member?, isFirst: Bool) throws(PatternError) -> Member {
        let scalar = try take()
        let first: Member
        switch scalar {
        case "[": return Member(set: try set(), kind: .set)
        case "\\":
            let found = try scalarEscape()
            first = Member(set: found, kind: found.onlyScalar == nil ? .escape : .scalar)
        case "-":
            let isLiteral = isFirst || next == "]" || previous?.kind == .range || previous?.kind == .escape
            guard isLiteral, next != "[", next != "-", next != "&" else {
                throw error("write “\\-” for the character, or put it first or last in its set")
            }
            return Member(set: .scalar("-"), kind: .scalar)
        case "&":
            guard previous?.kind != .set, next != "[", next != "-" else { throw error("write “\\&” for the character") }
            first = Member(set: .scalar(scalar), kind: .scalar)
        default: first = Member(set: .scalar(scalar), kind: .scalar)
        }
        guard next == "-", index + 1 < scalars.count, scalars[index + 1] != "]", scalars[index + 1] != "-",
            first.kind == .scalar
        else { return first }
        index += 1
        return try range(from: first.set)
    }

    /// Reads the end of a range.
    private mutating func range(from first: ScalarSet) throws(PatternError) -> Member {
        let last = try take()
        guard last != "[", let start = first.onlyScalar,
            let end = last == "\\" ? try scalarEscape().onlyScalar : last
        else { throw error("a range must end with one character") }
        guard start <= end else { throw error("a range ends before its start") }
        return Member(set: .range(start...end), kind: .range)
    }
}
