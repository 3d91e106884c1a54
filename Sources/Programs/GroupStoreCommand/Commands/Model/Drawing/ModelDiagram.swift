import ManagedObjectModels

/// A picture of a model for another program to draw: entities with their attributes, relationships and inheritance.
struct ModelDiagram {
    private let model: ManagedObjectModel

    init(_ model: ManagedObjectModel) { self.model = model }

    /// A line between two entities: a relationship with its inverse, if it has one.
    struct Edge {
        let source: String
        let destination: String
        let relationship: RelationshipDescription
        let inverse: RelationshipDescription?
    }

    /// One edge for a relationship and its inverse.
    var edges: [Edge] {
        var found: [Edge] = []
        for entity in model.entities {
            for relationship in entity.relationships.sorted(by: { $0.name.precedes($1.name) }) {
                let inverse = model.inverse(of: relationship)
                let isDrawn = found.contains { edge in
                    edge.relationship.name == relationship.inverseName && edge.inverse == relationship
                        && edge.destination == entity.name
                }
                guard !isDrawn else { continue }
                found.append(
                    Edge(
                        source: entity.name, destination: relationship.destinationEntityName,
                        relationship: relationship, inverse: inverse))
            }
        }
        return found
    }

    /// The identifier of each entity: a diagram's language permits fewer names than a model.
    private var identifiers: [String: String] {
        Dictionary(
            zip(model.entities.map(\.name), model.entities.indices.map { "e\($0)" }),
            uniquingKeysWith: { first, _ in first })
    }

    static func multiplicity(_ relationship: RelationshipDescription?) -> String? {
        relationship.map { relationship in
            guard !relationship.isToMany else {
                let least = relationship.isOptional ? 0 : max(Int(relationship.minCount), 0)
                let most = relationship.maxCount > 1 ? String(relationship.maxCount) : "*"
                return least == 0 && most == "*" ? "*" : "\(least)..\(most)"
            }
            return relationship.isOptional ? "0..1" : "1"
        }
    }

    private static func label(_ edge: Edge) -> String {
        edge.relationship.name + (edge.inverse.map { $0.name == edge.relationship.name ? "" : " / " + $0.name } ?? "")
    }

    static func suffix(_ attribute: AttributeDescription) -> String {
        (attribute.isOptional ? "?" : "") + (attribute.isTransient ? " (transient)" : "")
            + (attribute.derivation == nil ? "" : " (derived)")
    }

    // MARK: Mermaid

    /// The lines of a class diagram in Mermaid's language (mermaid.js.org, "Class diagrams").
    var mermaid: [String] {
        let identifiers = identifiers
        var lines = ["classDiagram"]
        for entity in model.entities {
            let identifier = identifiers[entity.name] ?? ""
            lines.append("    class \(identifier)[\"\(Self.mermaidText(entity.name))\"]")
            if entity.isAbstract { lines.append("    <<abstract>> \(identifier)") }
            for attribute in entity.attributes.sorted(by: { $0.name.precedes($1.name) }) {
                let text = attribute.name + ": " + attribute.type.name + Self.suffix(attribute)
                lines.append("    \(identifier) : " + Self.mermaidText(text))
            }
        }
        for entity in model.entities {
            guard let parent = entity.superentityName else { continue }
            lines.append("    \(identifiers[parent] ?? "") <|-- \(identifiers[entity.name] ?? "")")
        }
        for edge in edges {
            let near = Self.multiplicity(edge.inverse).map { " \"\($0)\"" } ?? ""
            let far = Self.multiplicity(edge.relationship) ?? ""
            let arrow = edge.inverse == nil ? "-->" : "--"
            lines.append(
                "    \(identifiers[edge.source] ?? "")\(near) \(arrow) \"\(far)\" \(identifiers[edge.destination] ?? "") : "
                    + Self.mermaidText(Self.label(edge)))
        }
        return lines
    }

    /// Returns the text with entity codes for the characters that mean something in a diagram.
    private static func mermaidText(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            let isPlain =
                scalar.properties.isAlphabetic || ("0"..."9").contains(scalar)
                || " _.-/?:".unicodeScalars.contains(scalar)
            return isPlain ? String(scalar) : "#\(scalar.value);"
        }.joined()
    }

    // MARK: Graphviz

    /// The lines of a graph in the language of Graphviz (graphviz.org, "DOT Language").
    var dot: [String] {
        let identifiers = identifiers
        var lines = [
            "digraph model {", "    graph [rankdir=LR]", "    node [shape=plaintext, fontname=\"Helvetica\"]",
            "    edge [fontname=\"Helvetica\", fontsize=10]",
        ]
        for entity in model.entities {
            let name = Self.markup(entity.name)
            let title = entity.isAbstract ? "<i>\(name)</i>" : "<b>\(name)</b>"
            let rows = entity.attributes.sorted { $0.name.precedes($1.name) }.map { attribute in
                "<tr><td align=\"left\">\(Self.markup(attribute.name))</td><td align=\"left\">"
                    + Self.markup(attribute.type.name + Self.suffix(attribute)) + "</td></tr>"
            }
            lines.append(
                "    \(identifiers[entity.name] ?? "") [label=<<table border=\"1\" cellborder=\"0\" cellspacing=\"0\">"
                    + "<tr><td colspan=\"2\" bgcolor=\"lightgray\">\(title)</td></tr>\(rows.joined())</table>>]")
        }
        for entity in model.entities {
            guard let parent = entity.superentityName else { continue }
            lines.append("    \(identifiers[entity.name] ?? "") -> \(identifiers[parent] ?? "") [arrowhead=empty]")
        }
        for edge in edges {
            let head = Self.multiplicity(edge.relationship) ?? ""
            let tail = Self.multiplicity(edge.inverse).map { ", taillabel=\"\($0)\"" } ?? ""
            let ends = edge.inverse == nil ? "" : ", dir=none"
            lines.append(
                "    \(identifiers[edge.source] ?? "") -> \(identifiers[edge.destination] ?? "") "
                    + "[label=<\(Self.markup(Self.label(edge)))>, headlabel=\"\(head)\"\(tail)\(ends)]")
        }
        return lines + ["}"]
    }

    /// Returns the text as character references where it isn't plain.
    private static func markup(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            let isPlain =
                scalar.properties.isAlphabetic || ("0"..."9").contains(scalar)
                || " _.-/?:()".unicodeScalars.contains(scalar)
            return isPlain ? String(scalar) : scalar.value < 0x20 ? " " : "&#\(scalar.value);"
        }.joined()
    }
}
