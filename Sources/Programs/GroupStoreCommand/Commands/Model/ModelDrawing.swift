import LinuxSystem
import ManagedObjectModels

/// A picture of a model as a scalable vector graphic (www.w3.org/TR/SVG2): a box for each entity with its attributes
/// and relationships, a line between related entities, an arrow to a parent. The boxes stand in rows; connected ones
/// are near each other.
struct ModelDrawing {
    private struct Box {
        let entity: EntityDescription
        let rows: [String]
        let width: Int
        let height: Int
        var x = 0
        var y = 0

        var center: (x: Int, y: Int) { (x + width / 2, y + height / 2) }
    }

    private let diagram: ModelDiagram
    private var boxes: [Box] = []
    private var size = (width: 0, height: 0)

    private static let (gap, rowHeight, titleHeight, margin) = (90, 19, 28, 24)
    /// The width of a character; a browser's font is narrower.
    private static let characterWidth = 8

    init(_ model: ManagedObjectModel) {
        diagram = ModelDiagram(model)
        boxes = Self.ordered(model).map { entity in
            let attributes = entity.attributes.sorted { $0.name.precedes($1.name) }.map {
                $0.name + ": " + $0.type.name + ModelDiagram.suffix($0)
            }
            let relationships = entity.relationships.sorted { $0.name.precedes($1.name) }.map {
                "\($0.name) → \($0.destinationEntityName) \(ModelDiagram.multiplicity($0) ?? "")"
            }
            let rows = (attributes + relationships).map { PrintableText($0).description }
            let longest = ([entity.name] + rows).map(\.count).max() ?? 0
            return Box(
                entity: entity, rows: rows, width: max(110, longest * Self.characterWidth + 20),
                height: Self.titleHeight + max(rows.count, 1) * Self.rowHeight + 8)
        }
        place()
    }

    /// Returns the entities so that those connected follow each other.
    private static func ordered(_ model: ManagedObjectModel) -> [EntityDescription] {
        var rest = model.entities
        var found: [EntityDescription] = []
        while let first = rest.first {
            var queue = [first.name]
            while !queue.isEmpty {
                let name = queue.removeFirst()
                guard let index = rest.firstIndex(where: { $0.name == name }) else { continue }
                let entity = rest.remove(at: index)
                found.append(entity)
                queue += [entity.superentityName].compactMap(\.self)
                queue += entity.relationships.map(\.destinationEntityName).sorted { $0.precedes($1) }
                queue += rest.filter { $0.superentityName == name }.map(\.name)
            }
        }
        return found
    }

    /// Places the boxes in rows, about as wide as they are high.
    private mutating func place() {
        let area = boxes.reduce(0) { $0 + ($1.width + Self.gap) * ($1.height + Self.gap) }
        let limit = max(Int(Double(area).squareRoot() * 1.3), 400)
        var (x, y, height) = (Self.margin, Self.margin, 0)
        for index in boxes.indices {
            if x > Self.margin, x + boxes[index].width > limit {
                (x, y, height) = (Self.margin, y + height + Self.gap, 0)
            }
            (boxes[index].x, boxes[index].y) = (x, y)
            size.width = max(size.width, x + boxes[index].width + Self.margin)
            x += boxes[index].width + Self.gap
            height = max(height, boxes[index].height)
            size.height = max(size.height, y + height + Self.margin)
        }
        size = (max(size.width, 240), max(size.height, 80))
    }

    /// The lines of the graphic.
    var lines: [String] {
        [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"\(size.width)\" height=\"\(size.height)\" "
                + "viewBox=\"0 0 \(size.width) \(size.height)\" font-family=\"sans-serif\" font-size=\"13\">",
            "<defs><marker id=\"parent\" viewBox=\"0 0 12 12\" refX=\"12\" refY=\"6\" markerWidth=\"12\" "
                + "markerHeight=\"12\" orient=\"auto\"><path d=\"M1 1 12 6 1 11Z\" fill=\"white\" stroke=\"black\"/></marker>"
                + "</defs>",
            "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>",
        ] + parents + edges + boxes.flatMap(lines) + ["</svg>"]
    }

    private func box(_ name: String) -> Box? { boxes.first { $0.entity.name == name } }

    private var parents: [String] {
        boxes.compactMap { child in
            guard let parent = child.entity.superentityName.flatMap(box) else { return nil }
            let (start, end) = (Self.border(of: child, towards: parent), Self.border(of: parent, towards: child))
            return "<line x1=\"\(start.x)\" y1=\"\(start.y)\" x2=\"\(end.x)\" y2=\"\(end.y)\" stroke=\"black\" "
                + "marker-end=\"url(#parent)\"/>"
        }
    }

    /// A line for each two related entities. Which relationships they have is in the boxes.
    private var edges: [String] {
        var drawn: Set<Set<String>> = []
        return diagram.edges.compactMap { edge in
            guard let source = box(edge.source), let destination = box(edge.destination),
                drawn.insert([edge.source, edge.destination]).inserted
            else { return nil }
            if edge.source == edge.destination {
                return
                    "<path d=\"M\(source.x + source.width) \(source.y + 8)h22v18h-22\" fill=\"none\" stroke=\"#357\"/>"
            }
            let (start, end) = (
                Self.border(of: source, towards: destination), Self.border(of: destination, towards: source)
            )
            return "<line x1=\"\(start.x)\" y1=\"\(start.y)\" x2=\"\(end.x)\" y2=\"\(end.y)\" stroke=\"#357\"/>"
        }
    }

    /// Returns the point where a line between two boxes' centres leaves the first.
    private static func border(of box: Box, towards other: Box) -> (x: Int, y: Int) {
        let (start, end) = (box.center, other.center)
        let (dx, dy) = (Double(end.x - start.x), Double(end.y - start.y))
        guard dx != 0 || dy != 0 else { return start }
        let scale = min(
            dx == 0 ? .infinity : Double(box.width) / 2 / abs(dx),
            dy == 0 ? .infinity : Double(box.height) / 2 / abs(dy))
        return (start.x + Int(dx * min(scale, 1)), start.y + Int(dy * min(scale, 1)))
    }

    private func lines(_ box: Box) -> [String] {
        let style = box.entity.isAbstract ? " font-style=\"italic\"" : " font-weight=\"bold\""
        return [
            "<g transform=\"translate(\(box.x) \(box.y))\">",
            "<rect width=\"\(box.width)\" height=\"\(box.height)\" fill=\"white\" stroke=\"black\"/>",
            "<rect width=\"\(box.width)\" height=\"\(Self.titleHeight)\" fill=\"#dde6f0\" stroke=\"black\"/>",
            "<text x=\"\(box.width / 2)\" y=\"19\" text-anchor=\"middle\"\(style)>\(HTMLPage.text(box.entity.name))</text>",
        ]
            + zip(0..., box.rows).map { number, row in
                let y = Self.titleHeight + 15 + number * Self.rowHeight
                return "<text x=\"8\" y=\"\(y)\">\(HTMLPage.text(row))</text>"
            } + ["</g>"]
    }
}
