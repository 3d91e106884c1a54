import LinuxSystem
import ManagedObjectModels

/// A picture of a model as a scalable vector graphic (www.w3.org/TR/SVG2): a box for each entity with its attributes
/// and relationships, a line from each relationship to its inverse, an arrow to a parent. It follows a browser's dark
/// mode, and screen readers find a title for each entity and line.
struct ModelDrawing {
    private let name: String
    private let content: DiagramBoxes
    private let layout: DiagramLayout
    private let inheritance: [(child: Int, parent: Int)]

    private static let (rowHeight, titleHeight) = (DiagramLayout.grid, 28)
    /// The middle of the first row's text.
    private static let firstRow = 40

    /// - Parameter name: The model's name.
    init(_ model: ManagedObjectModel, named name: String) {
        self.name = name
        content = DiagramBoxes(model)
        inheritance = content.inheritance
        let boxes = content.boxes.map { box in
            let title = TextExtent.width(box.entity.name, size: 14)
            let rows = box.rows.map { TextExtent.width($0.text, size: 13) }
            return DiagramLayout.Box(
                width: max(120, max(title, rows.max() ?? 0) + 20),
                height: Self.firstRow + max(box.rows.count, 1) * Self.rowHeight)
        }
        layout = DiagramLayout(boxes, Self.lines(content, inheritance))
    }

    private static func lines(
        _ content: DiagramBoxes, _ inheritance: [(child: Int, parent: Int)]
    ) -> [DiagramLayout.Line] {
        let relationships = content.edges.map { edge in
            func end(_ place: (box: Int, row: Int), _ label: String) -> DiagramLayout.End {
                DiagramLayout.End(
                    box: place.box, offset: firstRow + place.row * rowHeight,
                    label: TextExtent.width(label, size: 11))
            }
            return DiagramLayout.Line(
                start: end(edge.start, edge.multiplicity.start), end: end(edge.end, edge.multiplicity.end), trunk: nil)
        }
        let arrows = inheritance.map { child, parent in
            DiagramLayout.Line(
                start: DiagramLayout.End(box: child, offset: 18, label: 0),
                end: DiagramLayout.End(box: parent, offset: 10, label: 0), trunk: parent)
        }
        return relationships + arrows
    }

    /// The lines of the graphic.
    var lines: [String] {
        let (width, height) = layout.size
        let count = Counted(content.boxes.count, "entity", "entities")
        return [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"\(width)\" height=\"\(height)\" "
                + "viewBox=\"0 0 \(width) \(height)\" role=\"graphics-document document\" aria-labelledby=\"title\">",
            "<title id=\"title\">\(HTMLPage.text("Model \(name), \(count)"))</title>",
            "<style>\(Self.style)</style>",
            "<defs><marker id=\"parent\" viewBox=\"0 0 12 12\" refX=\"12\" refY=\"6\" markerWidth=\"12\" "
                + "markerHeight=\"12\" orient=\"auto\"><path d=\"M1 1 12 6 1 11Z\"/></marker></defs>",
            "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>",
        ] + arrows + edges + zip(content.boxes, layout.boxes).flatMap(Self.lines) + ["</svg>"]
    }

    // MARK: Lines

    private var edges: [String] {
        zip(content.edges, layout.paths).map { edge, path in
            "<g class=\"relationship\"><title>\(HTMLPage.text(edge.title))</title>\(Self.path(path))"
                + Self.label(edge.multiplicity.start, at: path.first, towards: path.dropFirst().first)
                + Self.label(edge.multiplicity.end, at: path.last, towards: path.dropLast().last) + "</g>"
        }
    }

    private var arrows: [String] {
        zip(inheritance, layout.paths.dropFirst(content.edges.count)).map { pair, path in
            let title = "\(content.boxes[pair.child].entity.name) is a \(content.boxes[pair.parent].entity.name)"
            return "<g class=\"parent\"><title>\(HTMLPage.text(title))</title>\(Self.path(path))</g>"
        }
    }

    private static func path(_ points: [DiagramLayout.Point]) -> String {
        let corners = points.map { "\($0.x) \($0.y)" }.joined(separator: "L")
        return "<path d=\"M\(corners)\"/>"
    }

    /// Returns a multiplicity beside the box, above the line.
    private static func label(
        _ text: String, at point: DiagramLayout.Point?, towards next: DiagramLayout.Point?
    ) -> String {
        guard let point, let next else { return "" }
        let isRight = next.x > point.x
        return "<text x=\"\(point.x + (isRight ? 6 : -6))\" y=\"\(point.y - 4)\""
            + (isRight ? "" : " text-anchor=\"end\"") + ">\(HTMLPage.text(text))</text>"
    }

    // MARK: Boxes

    private static func lines(_ content: DiagramBoxes.Box, _ box: DiagramLayout.Box) -> [String] {
        let entity = content.entity
        let title = entity.name + (entity.isAbstract ? ", abstract" : "")
        return [
            "<g class=\"entity\" role=\"graphics-object group\" transform=\"translate(\(box.x) \(box.y))\">"
                + "<title>\(HTMLPage.text(title))</title>",
            "<rect class=\"box\" width=\"\(box.width)\" height=\"\(box.height)\" rx=\"4\"/>",
            "<path class=\"head\" d=\"M0 \(titleHeight)V4A4 4 0 0 1 4 0H\(box.width - 4)"
                + "A4 4 0 0 1 \(box.width) 4V\(titleHeight)Z\"/>",
            "<text class=\"\(entity.isAbstract ? "abstract" : "name")\" x=\"\(box.width / 2)\" y=\"19\">"
                + "\(HTMLPage.text(entity.name))</text>",
        ]
            + zip(0..., content.rows).map { number, row in
                "<text class=\"\(row.kind)\" x=\"10\" y=\"\(firstRow + number * rowHeight + 5)\">"
                    + "\(HTMLPage.text(row.text))</text>"
            } + ["</g>"]
    }

    /// Plain colours instead of variables, which few programs but browsers know.
    private static let style = """
        text{font:13px system-ui,sans-serif;fill:#1b1f24}\
        .name,.abstract{font-size:14px;font-weight:600;text-anchor:middle}.abstract{font-style:italic}\
        .paper{fill:#fff}.box{fill:#fff;stroke:#6e7781}.head{fill:#e3ecf7;stroke:#6e7781}\
        .relationship path{fill:none;stroke:#2f6db3;stroke-width:1.3}\
        .relationship text{font-size:11px;fill:#1f4e85}.relationship:hover path{stroke-width:3}\
        .parent path,marker path{fill:none;stroke:#57606a}marker path{fill:#fff}\
        .parent path{marker-end:url(#parent)}text.incoming{fill:#57606a}\
        @media(prefers-color-scheme:dark){\
        text{fill:#e6edf3}.paper{fill:#0d1117}.box{fill:#161b22;stroke:#6e7681}.head{fill:#1f3048;stroke:#6e7681}\
        .relationship path{stroke:#6cb0ff}.relationship text{fill:#a5d0ff}\
        .parent path,marker path{stroke:#9aa4af}marker path{fill:#0d1117}text.incoming{fill:#9aa4af}}
        """
}
