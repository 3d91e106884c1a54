import LinuxSystem
import ManagedObjectModels

/// What the boxes of a model's picture contain, and which rows its lines connect.
struct DiagramBoxes {
    struct Row {
        enum Kind { case attribute, relationship, incoming }

        let text: String
        let kind: Kind
    }

    struct Box {
        let entity: EntityDescription
        var rows: [Row] = []
        /// The rows of its relationships.
        fileprivate var places: [String: Int] = [:]
    }

    /// A relationship with its inverse, or one that has none.
    struct Edge {
        let start: (box: Int, row: Int)
        let end: (box: Int, row: Int)
        /// How many objects there may be at either end.
        let multiplicity: (start: String, end: String)
        /// Both relationships in words.
        let title: String
    }

    private(set) var boxes: [Box] = []
    private(set) var edges: [Edge] = []
    private var indices: [String: Int] = [:]

    init(_ model: ManagedObjectModel) {
        boxes = Self.ordered(model).map { Box(entity: $0) }
        for (index, box) in boxes.enumerated() { indices[box.entity.name] = index }
        for index in boxes.indices { addRows(to: index) }
        for index in boxes.indices { addEdges(of: index, model) }
    }

    /// The children and parents, as indices of boxes.
    var inheritance: [(child: Int, parent: Int)] {
        boxes.indices.compactMap { child in
            boxes[child].entity.superentityName.flatMap { indices[$0] }.map { (child, $0) }
        }
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

    private mutating func addRows(to index: Int) {
        let entity = boxes[index].entity
        for attribute in entity.attributes.sorted(by: { $0.name.precedes($1.name) }) {
            add("\(attribute.name): \(attribute.type.name)\(ModelDiagram.suffix(attribute))", .attribute, to: index)
        }
        for relationship in entity.relationships.sorted(by: { $0.name.precedes($1.name) }) {
            boxes[index].places[relationship.name] = boxes[index].rows.count
            add("\(relationship.name) → \(relationship.destinationEntityName)", .relationship, to: index)
        }
    }

    private mutating func add(_ text: String, _ kind: Row.Kind, to index: Int) {
        boxes[index].rows.append(Row(text: PrintableText(text).description, kind: kind))
    }

    // MARK: Edges

    private mutating func addEdges(of index: Int, _ model: ManagedObjectModel) {
        let entity = boxes[index].entity
        for relationship in entity.relationships.sorted(by: { $0.name.precedes($1.name) }) {
            guard let row = boxes[index].places[relationship.name], !isConnected(index, row),
                let destination = indices[relationship.destinationEntityName]
            else { continue }
            let many = ModelDiagram.multiplicity(relationship) ?? ""
            let words = "\(entity.name).\(relationship.name) → \(relationship.destinationEntityName), \(many)"
            if let inverse = model.inverse(of: relationship), let end = place(of: inverse, at: destination),
                end != (index, row), !isConnected(end.box, end.row)
            {
                let back = ModelDiagram.multiplicity(inverse) ?? ""
                let title = "\(words); \(boxes[end.box].entity.name).\(inverse.name) → \(entity.name), \(back)"
                edges.append(Edge(start: (index, row), end: end, multiplicity: (back, many), title: title))
                continue
            }
            // Without an inverse, any number of objects may refer to one. A relationship that is its own inverse
            // needs a second row, too.
            let back = relationship.inverseName == nil ? "*" : ModelDiagram.multiplicity(relationship) ?? "*"
            add("← \(entity.name).\(relationship.name)", .incoming, to: destination)
            let end = (destination, boxes[destination].rows.count - 1)
            edges.append(Edge(start: (index, row), end: end, multiplicity: (back, many), title: words))
        }
    }

    private func isConnected(_ box: Int, _ row: Int) -> Bool {
        edges.contains { $0.start == (box, row) || $0.end == (box, row) }
    }

    /// Returns the row of a relationship, which an ancestor of the entity may declare.
    private func place(of relationship: RelationshipDescription, at box: Int) -> (box: Int, row: Int)? {
        var next: Int? = box
        // A model that isn't valid may have a circle.
        for _ in boxes {
            guard let box = next else { return nil }
            if let row = boxes[box].places[relationship.name] { return (box, row) }
            next = boxes[box].entity.superentityName.flatMap { indices[$0] }
        }
        return nil
    }
}
