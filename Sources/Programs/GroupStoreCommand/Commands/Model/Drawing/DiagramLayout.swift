/// The places of boxes and of the lines between them: the boxes stand in columns, and the lines run at right angles in
/// the channels between the columns and in the gaps above and below the boxes. No line can cross a box. A pure value.
///
/// Hand-written because Graphviz would be a dependency for a picture, and its lines pass behind boxes.
struct DiagramLayout {
    struct Box {
        /// The least width; boxes in one column get the same.
        var width: Int
        /// A multiple of `grid`.
        let height: Int
        var x = 0
        var y = 0
    }

    /// An end of a line.
    struct End {
        /// The index of the box.
        let box: Int
        /// The height at which the line reaches the box, from the box's top.
        let offset: Int
        /// The width of the label at this end.
        let label: Int
    }

    struct Line {
        let start: End
        let end: End
        /// Lines with the same trunk share their way as far as possible; nil for a line of its own.
        let trunk: Int?
    }

    typealias Point = (x: Int, y: Int)

    /// The tops of all boxes are multiples of it, so that lines of different kinds can't lie on each other.
    static let grid = 20
    static let margin = 20
    /// The distance between two lines beside each other.
    static let trackWidth = 8

    private(set) var boxes: [Box]
    private(set) var size: (width: Int, height: Int) = (0, 0)
    /// The corners of each line, from its start to its end.
    private(set) var paths: [[Point]] = []

    /// - Parameter boxes: The boxes, those connected near each other.
    init(_ boxes: [Box], _ lines: [Line]) {
        self.boxes = boxes
        let arrangement = ColumnArrangement(boxes, lines)
        var routes = DiagramRoutes(arrangement.columns, lines, boxes)
        place(&routes)
        paths = lines.indices.map { routes.path($0, self.boxes) }
    }

    private mutating func place(_ routes: inout DiagramRoutes) {
        routes.stack(&boxes)
        routes.chooseGaps(boxes)
        routes.stack(&boxes)
        routes.assignTracks(boxes)
        var x = Self.margin
        for (column, members) in routes.columns.enumerated() {
            routes.channels[column].x = x
            x += routes.channels[column].width
            let width = members.map { boxes[$0].width }.max() ?? 0
            for box in members { (boxes[box].x, boxes[box].width) = (x, width) }
            x += width
        }
        let last = routes.columns.count
        routes.channels[last].x = x
        size.width = x + routes.channels[last].width + Self.margin
        size.height = routes.height(boxes) + Self.margin
    }
}
