/// A part of a regular expression.
indirect enum PatternNode {
    enum Repetition {
        case greedy, lazy, possessive
    }

    enum Assertion {
        /// `^` and `\A`, `$` and `\Z`, `\z`.
        case textStart, textEnd, textEndExactly
        /// `^` and `$` with the flag m.
        case lineStart, lineEnd
        case wordBoundary, noWordBoundary
    }

    case empty
    case scalars(ScalarSet)
    /// `.` with the flag s: any scalar, or CR and LF together.
    case any
    /// `\R`.
    case lineBreak
    case sequence([PatternNode])
    case alternatives([PatternNode])
    case capture(PatternNode, number: Int)
    case repeated(PatternNode, minimum: Int, maximum: Int?, Repetition)
    case atomic(PatternNode)
    case look(PatternNode, isAhead: Bool, isNegative: Bool)
    case backreference(Int)
    case assertion(Assertion)
}
