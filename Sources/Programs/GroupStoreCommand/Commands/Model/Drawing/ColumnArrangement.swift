/// The distribution of boxes over columns: lines are short, and the picture is somewhat wider than high.
struct ColumnArrangement {
    /// The indices of the boxes in each column, from the top.
    private(set) var columns: [[Int]]
    private let boxes: [DiagramLayout.Box]
    private let lines: [DiagramLayout.Line]

    /// The height of a gap between two boxes, and the width of a channel, before lines run there.
    private static let (gap, channel) = (40, 120)
    /// How many arrangements are compared. The time of a comparison grows with the number of boxes and lines.
    private static let comparisons = 20_000

    init(_ boxes: [DiagramLayout.Box], _ lines: [DiagramLayout.Line]) {
        (self.boxes, self.lines) = (boxes, lines)
        columns = []
        let most = max(1, min(boxes.count, 16))
        let candidates = (1...most).map { split(into: $0) }
        columns =
            candidates.min { extent($0) < extent($1) } ?? [Array(boxes.indices)]
        improve()
    }

    private func height(_ column: [Int]) -> Int { column.reduce(0) { $0 + boxes[$1].height + Self.gap } }

    /// Returns the longer side of the picture, where the width counts less.
    private func extent(_ columns: [[Int]]) -> Int {
        let width = columns.reduce(0) { $0 + Self.channel + ($1.map { boxes[$0].width }.max() ?? 0) }
        return max(width * 5 / 7, columns.map(height).max() ?? 0)
    }

    /// Returns the boxes in their order, in at most that many columns of about the same height.
    private func split(into count: Int) -> [[Int]] {
        let limit = height(Array(boxes.indices)) / count
        var columns: [[Int]] = [[]]
        var used = 0
        for index in boxes.indices {
            let own = boxes[index].height + Self.gap
            // A box that mostly fits stays.
            if used > 0, used + own / 2 > limit, columns.count < count {
                columns.append([])
                used = 0
            }
            columns[columns.count - 1].append(index)
            used += own
        }
        return columns
    }

    // MARK: Improving

    /// Exchanges and moves boxes as long as that makes the lines shorter.
    private mutating func improve() {
        var best = cost(columns)
        var left = Self.comparisons
        var improved = true
        while improved, left > 0 {
            improved = false
            for candidate in 0..<boxes.count {
                for other in 0..<boxes.count where other != candidate && left > 0 {
                    for next in [exchanged(candidate, other), moved(candidate, before: other)] {
                        left -= 1
                        let found = cost(next)
                        guard found < best else { continue }
                        (best, columns, improved) = (found, next, true)
                    }
                }
            }
        }
    }

    private func exchanged(_ first: Int, _ second: Int) -> [[Int]] {
        columns.map { $0.map { $0 == first ? second : $0 == second ? first : $0 } }
    }

    private func moved(_ box: Int, before other: Int) -> [[Int]] {
        columns.map { column in
            column.filter { $0 != box }.flatMap { $0 == other ? [box, other] : [$0] }
        }.filter { !$0.isEmpty }
    }

    private func cost(_ columns: [[Int]]) -> Int {
        var places = [(column: Int, y: Int)](repeating: (0, 0), count: boxes.count)
        for (column, members) in columns.enumerated() {
            var y = 0
            for box in members {
                places[box] = (column, y)
                y += boxes[box].height + Self.gap
            }
        }
        let length = lines.reduce(0) { sum, line in
            let (start, end) = (places[line.start.box], places[line.end.box])
            let steps = abs(start.column - end.column)
            // The same column is farther than the next one, and a column to cross is farther than two channels.
            let across = steps == 0 ? 260 : 180 + (steps - 1) * 420
            return sum + across + abs(start.y + line.start.offset - end.y - line.end.offset) / 2
        }
        return length + extent(columns) * max(lines.count, 4) / 3
    }
}
