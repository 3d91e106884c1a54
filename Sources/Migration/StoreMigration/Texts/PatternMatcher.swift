/// Matches a text by backtracking, with a stack of its own instead of recursion.
struct PatternMatcher {
    /// Some patterns need time that grows exponentially with the text's length.
    static let maximumSteps = 50_000_000
    /// The limits of the stack and the log, which together take less than 256 MiB.
    private static let maximumAlternatives = 4_000_000
    private static let maximumLogCount = 4_000_000

    /// A state to continue with on failure.
    private struct Alternative {
        let instruction: Int
        let position: Int
        /// The lowest position at which to continue; the alternative then stands for all positions from there.
        let lowest: Int
        /// True if no position is between CR and LF.
        let keepsCRLF: Bool
        /// The size of the log when the alternative arose.
        let logCount: Int
    }

    private let program: PatternProgram
    private let text: [Unicode.Scalar]
    private var registers: [Int]
    /// The former values of registers.
    private var log: [(register: Int, value: Int)] = []
    private var alternatives: [Alternative] = []
    private var remainingSteps: Int

    init(_ program: PatternProgram, _ text: [Unicode.Scalar], steps: Int) {
        (self.program, self.text, remainingSteps) = (program, text, steps)
        registers = [Int](repeating: -1, count: program.registerCount)
    }

    mutating func matchesWhole() throws(PatternError) -> Bool { try run(0, at: 0, until: text.count) != nil }

    /// Runs the program from an instruction up to its `accept`. Returns the end of the match, which must be `end` if
    /// that isn't nil.
    private mutating func run(_ start: Int, at position: Int, until end: Int?) throws(PatternError) -> Int? {
        let base = alternatives.count
        var (instruction, position) = (start, position)
        while true {
            remainingSteps -= 1
            guard remainingSteps > 0, alternatives.count <= Self.maximumAlternatives, log.count <= Self.maximumLogCount
            else {
                throw PatternError(description: "matching takes too many steps: simplify its repetitions")
            }
            if case .accept = program.instructions[instruction], end == nil || position == end {
                alternatives.removeSubrange(base...)
                return position
            }
            if let next = try step(&instruction, at: position) {
                position = next
            } else if alternatives.count > base {
                (instruction, position) = resumed()
            } else {
                return nil
            }
        }
    }

    /// Returns to the last alternative.
    private mutating func resumed() -> (instruction: Int, position: Int) {
        let last = alternatives.removeLast()
        undo(to: last.logCount)
        if last.position > last.lowest {
            let lower = last.keepsCRLF ? anyStart(before: last.position, from: last.lowest) : last.position - 1
            add(last.instruction, at: lower ?? last.lowest, lowest: last.lowest, keepsCRLF: last.keepsCRLF)
        }
        return (last.instruction, last.position)
    }

    private mutating func undo(to count: Int) {
        while log.count > count {
            let entry = log.removeLast()
            registers[entry.register] = entry.value
        }
    }

    private mutating func set(_ register: Int, _ value: Int) {
        log.append((register, registers[register]))
        registers[register] = value
    }

    private mutating func add(_ instruction: Int, at position: Int, lowest: Int? = nil, keepsCRLF: Bool = false) {
        alternatives.append(
            Alternative(
                instruction: instruction, position: position, lowest: lowest ?? position, keepsCRLF: keepsCRLF,
                logCount: log.count))
    }

    /// Returns the start of what `.` matches before an end, with the flag s; nil at the lowest position.
    private func anyStart(before end: Int, from lowest: Int) -> Int? {
        guard end > lowest else { return nil }
        return end - 2 >= lowest && isCRLF(at: end - 2) ? end - 2 : end - 1
    }

    /// Performs an instruction. Returns the new position, or nil if it doesn't match.
    private mutating func step(_ instruction: inout Int, at position: Int) throws(PatternError) -> Int? {
        let current = instruction
        instruction += 1
        switch program.instructions[current] {
        case .accept: return nil
        case .match(let set): return position < text.count && set.contains(text[position]) ? position + 1 : nil
        case .matchMany(let set, let minimum, let maximum, let canGiveBack):
            let limit = maximum > text.count - position ? text.count : position + maximum
            var end = position
            while end < limit, set.contains(text[end]) { end += 1 }
            remainingSteps -= end - position
            guard end - position >= minimum else { return nil }
            if canGiveBack, end - position > minimum { add(instruction, at: end - 1, lowest: position + minimum) }
            return end
        case .lineBreak: return lineBreakEnd(at: position)
        case .any: return position < text.count ? position + (isCRLF(at: position) ? 2 : 1) : nil
        case .anyMany(let canGiveBack):
            if canGiveBack, let lower = anyStart(before: text.count, from: position) {
                add(instruction, at: lower, lowest: position, keepsCRLF: true)
            }
            return text.count
        case .assertion(let assertion): return holds(assertion, at: position) ? position : nil
        case .backreference(let number): return repetitionEnd(of: number, at: position)
        case .jump(let target): instruction = target
        case .split(let first, let second):
            add(second, at: position)
            instruction = first
        case .note(let register): set(register, position)
        case .leaveIfUnmoved(let register, let exit): if registers[register] == position { instruction = exit }
        case .atomic(let start, let next):
            instruction = next
            return try run(start, at: position, until: nil)
        case .look(let start, let isAhead, let isNegative, let next):
            instruction = next
            return try look(start, isAhead: isAhead, isNegative: isNegative, at: position) ? position : nil
        }
        return position
    }

    private mutating func look(
        _ start: Int, isAhead: Bool, isNegative: Bool, at position: Int
    ) throws(PatternError) -> Bool {
        let logCount = log.count
        var isFound = false
        if isAhead {
            isFound = try run(start, at: position, until: nil) != nil
        } else {
            var first = position
            while first >= 0, !isFound {
                isFound = try run(start, at: first, until: position) != nil
                first -= 1
            }
        }
        if isNegative || !isFound { undo(to: logCount) }
        return isFound != isNegative
    }

    private func lineBreakEnd(at position: Int) -> Int? {
        guard position < text.count, ScalarSet.lineTerminators.contains(text[position]) else { return nil }
        return isCRLF(at: position) ? position + 2 : position + 1
    }

    private func isCRLF(at position: Int) -> Bool {
        position >= 0 && position + 1 < text.count && text[position] == "\r" && text[position + 1] == "\n"
    }

    private func repetitionEnd(of number: Int, at position: Int) -> Int? {
        let (start, end) = (registers[2 * number], registers[2 * number + 1])
        guard start >= 0, end >= start, text.count - position >= end - start,
            text[start..<end].elementsEqual(text[position..<position + end - start])
        else { return nil }
        return position + end - start
    }

    // MARK: Assertions

    private func holds(_ assertion: PatternNode.Assertion, at position: Int) -> Bool {
        switch assertion {
        case .textStart: position == 0
        case .textEndExactly: position == text.count
        case .textEnd: position == text.count || isLastLineEnd(at: position)
        case .lineStart: position == 0 || position < text.count && isLineTerminator(at: position - 1)
        case .lineEnd: position == text.count || isLineTerminator(at: position) && !isCRLF(at: position - 1)
        case .wordBoundary: isWordBoundary(at: position)
        case .noWordBoundary: !isWordBoundary(at: position)
        }
    }

    private func isLineTerminator(at position: Int) -> Bool { ScalarSet.lineTerminators.contains(text[position]) }

    private func isLastLineEnd(at position: Int) -> Bool {
        position == text.count - 1 && isLineTerminator(at: position) && !isCRLF(at: position - 1)
            || position == text.count - 2 && isCRLF(at: position)
    }

    /// Marks and format characters belong to the character before them.
    private func isWordBoundary(at position: Int) -> Bool {
        if position < text.count, isIgnored(text[position]) { return false }
        let isWordAfter = position < text.count && ScalarSet.wordCharacters.contains(text[position])
        let base = text[..<position].last { !isIgnored($0) }
        return isWordAfter != (base.map { ScalarSet.wordCharacters.contains($0) } ?? false)
    }

    private func isIgnored(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.isGraphemeExtend || scalar.properties.generalCategory == .format
    }
}
