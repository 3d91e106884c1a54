/// A regular expression as instructions for the matcher.
struct PatternProgram {
    enum Instruction {
        case match(ScalarSet)
        /// Matches as many scalars as possible, and fewer on failure.
        case matchMany(ScalarSet, minimum: Int, maximum: Int, canGiveBack: Bool)
        case lineBreak
        case any
        /// Matches the rest of the text, and less on failure.
        case anyMany(canGiveBack: Bool)
        case assertion(PatternNode.Assertion)
        case backreference(Int)
        case jump(Int)
        /// Continues at the first, and on failure at the second.
        case split(Int, Int)
        /// Notes the position in a register: a capture's start or end, or the start of a loop's iteration.
        case note(Int)
        /// Leaves a loop whose iteration matched nothing.
        case leaveIfUnmoved(Int, exit: Int)
        /// Runs a part, up to its `accept`, without returning into it afterwards.
        case atomic(Int, next: Int)
        case look(Int, isAhead: Bool, isNegative: Bool, next: Int)
        case accept
    }

    private static let maximumSize = 50_000

    private(set) var instructions: [Instruction] = []
    private(set) var registerCount: Int

    init(_ root: PatternNode, captureCount: Int) throws(PatternError) {
        registerCount = 2 * (captureCount + 1)
        try add(root)
        try append(.accept)
    }

    @discardableResult
    private mutating func append(_ instruction: Instruction) throws(PatternError) -> Int {
        guard instructions.count < Self.maximumSize else {
            throw PatternError(description: "its repetitions make it too large")
        }
        instructions.append(instruction)
        return instructions.count - 1
    }

    private var end: Int { instructions.count }

    private mutating func add(_ node: PatternNode) throws(PatternError) {
        switch node {
        case .empty: break
        case .scalars(let set): try append(.match(set))
        case .lineBreak: try append(.lineBreak)
        case .any: try append(.any)
        case .assertion(let assertion): try append(.assertion(assertion))
        case .backreference(let number): try append(.backreference(number))
        case .sequence(let parts): for part in parts { try add(part) }
        case .alternatives(let parts): try addAlternatives(parts)
        case .capture(let part, let number):
            try append(.note(2 * number))
            try add(part)
            try append(.note(2 * number + 1))
        case .atomic(let part):
            let start = try append(.accept)
            try add(part)
            try append(.accept)
            instructions[start] = .atomic(start + 1, next: end)
        case .look(let part, let isAhead, let isNegative):
            let start = try append(.accept)
            try add(part)
            try append(.accept)
            instructions[start] = .look(start + 1, isAhead: isAhead, isNegative: isNegative, next: end)
        case .repeated(.scalars(let set), let minimum, let maximum, let kind) where kind != .lazy:
            try append(
                .matchMany(set, minimum: minimum, maximum: maximum ?? .max, canGiveBack: kind == .greedy))
        case .repeated(.any, let minimum, nil, let kind) where kind != .lazy:
            for _ in 0..<minimum { try append(.any) }
            try append(.anyMany(canGiveBack: kind == .greedy))
        case .repeated(let part, let minimum, let maximum, .possessive):
            try add(.atomic(.repeated(part, minimum: minimum, maximum: maximum, .greedy)))
        case .repeated(let part, let minimum, let maximum, let kind):
            try addRepeated(part, minimum, maximum, isLazy: kind == .lazy)
        }
    }

    private mutating func addAlternatives(_ parts: [PatternNode]) throws(PatternError) {
        var jumps: [Int] = []
        for part in parts.dropLast() {
            let split = try append(.accept)
            try add(part)
            jumps.append(try append(.accept))
            instructions[split] = .split(split + 1, end)
        }
        if let last = parts.last { try add(last) }
        for jump in jumps { instructions[jump] = .jump(end) }
    }

    private mutating func addRepeated(
        _ part: PatternNode, _ minimum: Int, _ maximum: Int?, isLazy: Bool
    ) throws(PatternError) {
        for _ in 0..<minimum { try add(part) }
        guard let maximum else {
            let register = registerCount
            registerCount += 1
            let split = try append(.accept)
            try append(.note(register))
            try add(part)
            try append(.leaveIfUnmoved(register, exit: end + 2))
            try append(.jump(split))
            instructions[split] = isLazy ? .split(end, split + 1) : .split(split + 1, end)
            return
        }
        var splits: [Int] = []
        for _ in minimum..<maximum {
            splits.append(try append(.accept))
            try add(part)
        }
        for split in splits { instructions[split] = isLazy ? .split(end, split + 1) : .split(split + 1, end) }
    }
}
