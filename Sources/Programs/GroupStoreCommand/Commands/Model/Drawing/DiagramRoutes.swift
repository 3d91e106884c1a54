/// The ways of lines through the channels beside the columns and the gaps above and below the boxes.
struct DiagramRoutes {
    /// The space at the left of a column, or at the right of the last one.
    struct Channel {
        var x = 0
        /// The space for labels and arrows at either side.
        var (left, right) = (24, 24)
        var tracks = 0
        var width: Int { left + right + max(tracks - 1, 0) * DiagramLayout.trackWidth }
    }

    /// Where a way crosses a column.
    private struct Gap: Hashable {
        let column: Int
        /// The gap is above the box with this number in the column, or below the last one.
        let number: Int
    }

    let columns: [[Int]]
    var channels: [Channel]
    private let lines: [DiagramLayout.Line]
    private let place: [(column: Int, number: Int)]
    /// The gaps that each line goes through, from the left.
    private var gaps: [[Gap]]
    /// The lines' trunks in a gap, each of which has a height of its own.
    private var users: [Gap: [Int]] = [:]
    /// The top of each gap.
    private var tops: [Gap: Int] = [:]
    /// The number of the track of each trunk in each channel.
    private var tracks: [[Int: Int]]

    private static let grid = DiagramLayout.grid

    init(_ columns: [[Int]], _ lines: [DiagramLayout.Line], _ boxes: [DiagramLayout.Box]) {
        (self.columns, self.lines) = (columns, lines)
        var place = [(column: Int, number: Int)](repeating: (0, 0), count: boxes.count)
        for (column, members) in columns.enumerated() {
            for (number, box) in members.enumerated() { place[box] = (column, number) }
        }
        self.place = place
        channels = Array(repeating: Channel(), count: columns.count + 1)
        channels[0].left = 0
        channels[0].right = 0
        gaps = Array(repeating: [], count: lines.count)
        tracks = Array(repeating: [:], count: columns.count + 1)
    }

    /// The trunk of a line; a line of its own is its own trunk.
    private func trunk(_ line: Int) -> Int { lines[line].trunk.map { -1 - $0 } ?? line }

    /// The line's ends, the left one first.
    private func ends(_ line: Int) -> (left: DiagramLayout.End, right: DiagramLayout.End) {
        let line = lines[line]
        return place[line.start.box].column <= place[line.end.box].column
            ? (line.start, line.end) : (line.end, line.start)
    }

    // MARK: Heights

    /// Sets the boxes' tops, so that each gap has room for the lines through it.
    mutating func stack(_ boxes: inout [DiagramLayout.Box]) {
        for (column, members) in columns.enumerated() {
            var y = 0
            for number in 0...members.count {
                let gap = Gap(column: column, number: number)
                tops[gap] = y
                let count = users[gap]?.count ?? 0
                let least = number == 0 ? 1 : 2
                y += max(least, count == 0 ? 0 : (count + 1) / 2 + 1) * Self.grid
                guard number < members.count else { break }
                boxes[members[number]].y = y
                y += boxes[members[number]].height
            }
        }
    }

    /// Returns the height of the picture.
    func height(_ boxes: [DiagramLayout.Box]) -> Int {
        columns.enumerated().map { column, members in
            let gap = Gap(column: column, number: members.count)
            return (tops[gap] ?? 0) + ((users[gap]?.count ?? 0) + 1) / 2 * Self.grid
        }.max() ?? 0
    }

    /// Chooses the gaps through which each line crosses the columns on its way.
    mutating func chooseGaps(_ boxes: [DiagramLayout.Box]) {
        for line in lines.indices {
            let (left, right) = ends(line)
            let first = place[left.box].column + 1
            guard first < place[right.box].column else { continue }
            var y = leftY(left, of: line, boxes)
            let goal = boxes[right.box].y + right.offset
            for column in first..<place[right.box].column {
                let candidates = (0...columns[column].count).map { Gap(column: column, number: $0) }
                func detour(_ gap: Gap) -> Int {
                    let top = (tops[gap] ?? 0) + Self.grid
                    let shared = users[gap]?.contains(trunk(line)) == true ? -200 : 0
                    return abs(top - y) + abs(top - goal) + shared + (users[gap]?.count ?? 0) * 4
                }
                guard let chosen = candidates.min(by: { detour($0) < detour($1) }) else { continue }
                gaps[line].append(chosen)
                if users[chosen]?.contains(trunk(line)) != true { users[chosen, default: []].append(trunk(line)) }
                y = (tops[chosen] ?? 0) + Self.grid
            }
        }
    }

    /// Returns the height of a line in a gap. Heights in neighbouring columns differ, and differ from those of lines
    /// that reach a box.
    private func y(_ line: Int, in gap: Gap) -> Int {
        let number = users[gap]?.firstIndex(of: trunk(line)) ?? 0
        return (tops[gap] ?? 0) + (gap.column.isMultiple(of: 2) ? 14 : 16) + number * Self.grid / 2
    }

    // MARK: Channels

    /// A part of a trunk in a channel: where it enters at the left and at the right, as heights.
    private struct Passage {
        var left: [Int] = []
        var right: [Int] = []
        var all: ClosedRange<Int> {
            let heights = left + right
            return (heights.min() ?? 0)...(heights.max() ?? 0)
        }
        /// Passages are packed from the left in this order, in which few of them cross: loops at one side, then those
        /// that rise, the upper ones first, then those that fall, the lower ones first.
        var rank: (Int, Int) {
            guard let start = left.min(), let end = right.min() else { return (0, all.count) }
            return end < start ? (1, start) : (2, -start)
        }
    }

    /// Returns the heights at which a line enters and leaves each channel on its way.
    private func passages(_ line: Int, _ boxes: [DiagramLayout.Box]) -> [(channel: Int, from: Int, to: Int)] {
        let left = ends(line).left
        let (start, end) = (leftY(left, of: line, boxes), rightY(line, boxes))
        let heights = [start] + gaps[line].map { y(line, in: $0) } + [end]
        let first = place[left.box].column + 1
        return zip(heights, heights.dropFirst()).enumerated().map { (first + $0.offset, $0.element.0, $0.element.1) }
    }

    /// Returns the height of an end at the left of a channel. It is a bit lower than one at the right, so that no two
    /// lines lie on each other; a child's is so much lower that it can't be one of a relationship.
    private func leftY(_ end: DiagramLayout.End, of line: Int, _ boxes: [DiagramLayout.Box]) -> Int {
        let isChild = lines[line].trunk != nil && end.box == lines[line].start.box
        return boxes[end.box].y + end.offset + (isChild ? 10 : 2)
    }

    /// Returns the height of a line's right end; both ends of a loop are at the left of a channel.
    private func rightY(_ line: Int, _ boxes: [DiagramLayout.Box]) -> Int {
        let right = ends(line).right
        return isLoop(line) ? leftY(right, of: line, boxes) : boxes[right.box].y + right.offset
    }

    private func isLoop(_ line: Int) -> Bool {
        let (left, right) = ends(line)
        return place[left.box].column == place[right.box].column
    }

    /// True if a line goes straight through a channel: its ends' heights differ only because they are at two sides.
    private func isStraight(_ line: Int, _ from: Int, _ to: Int) -> Bool {
        lines[line].trunk == nil && gaps[line].isEmpty && !isLoop(line) && abs(from - to) < 4
    }

    /// Gives each line a track of its own in each channel, and each channel its width.
    mutating func assignTracks(_ boxes: [DiagramLayout.Box]) {
        var found: [[Int: Passage]] = Array(repeating: [:], count: channels.count)
        for line in lines.indices {
            for (channel, from, to) in passages(line, boxes) where !isStraight(line, from, to) {
                found[channel][trunk(line), default: Passage()].left.append(from)
                if isLoop(line) {
                    found[channel][trunk(line), default: Passage()].left.append(to)
                } else {
                    found[channel][trunk(line), default: Passage()].right.append(to)
                }
            }
            makeRoom(forLabelsOf: line)
        }
        for channel in channels.indices {
            var taken: [[ClosedRange<Int>]] = []
            let order = found[channel].sorted {
                ($0.value.rank.0, $0.value.rank.1, $0.key) < ($1.value.rank.0, $1.value.rank.1, $1.key)
            }
            for (trunk, passage) in order {
                let range = (passage.all.lowerBound - 6)...(passage.all.upperBound + 6)
                let free = taken.firstIndex { !$0.contains { $0.overlaps(range) } }
                if free == nil { taken.append([]) }
                let track = free ?? taken.count - 1
                taken[track].append(range)
                tracks[channel][trunk] = track
            }
            channels[channel].tracks = taken.count
        }
    }

    private mutating func makeRoom(forLabelsOf line: Int) {
        let (left, right) = ends(line)
        let (first, last) = (place[left.box].column + 1, place[right.box].column)
        channels[first].left = max(channels[first].left, left.label + 14)
        if isLoop(line) {
            channels[first].left = max(channels[first].left, right.label + 14)
        } else {
            channels[last].right = max(channels[last].right, right.label + 14)
        }
    }

    // MARK: Paths

    /// Returns the corners of a line, from its start to its end.
    func path(_ line: Int, _ boxes: [DiagramLayout.Box]) -> [DiagramLayout.Point] {
        let (left, right) = ends(line)
        var points: [DiagramLayout.Point] = []
        func edge(_ end: DiagramLayout.End) -> Int { boxes[end.box].x + boxes[end.box].width }
        points.append((edge(left), leftY(left, of: line, boxes)))
        for (channel, from, to) in passages(line, boxes) {
            if isStraight(line, from, to) {
                continue
            }
            let track = tracks[channel][trunk(line)] ?? 0
            let x = channels[channel].x + channels[channel].left + track * DiagramLayout.trackWidth
            points += [(x, from), (x, to)]
        }
        if isLoop(line) {
            points.append((edge(right), rightY(line, boxes)))
        } else if let last = passages(line, boxes).last {
            // A straight line has the height of its left end, all the way: no other line has it.
            points.append((boxes[right.box].x, isStraight(line, last.from, last.to) ? last.from : last.to))
        }
        let isForward = place[lines[line].start.box].column <= place[lines[line].end.box].column
        return isForward ? points : points.reversed()
    }
}
