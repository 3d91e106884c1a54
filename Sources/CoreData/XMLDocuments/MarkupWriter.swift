/// A writer of XML documents whose elements contain elements, not text.
package struct MarkupWriter {
    package typealias Attributes = [(name: String, value: String?)]

    private var lines = ["<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>"]
    /// The elements that have begun, each with the line of its start tag.
    private var open: [(name: String, line: Int)] = []

    package init() {}

    /// The document. Every element that was begun must have ended.
    package var text: String { lines.joined(separator: "\n") + "\n" }

    /// Begins an element. Leaves out attributes whose value is nil.
    package mutating func begin(_ name: String, _ attributes: Attributes = []) {
        let tag = attributes.reduce("<" + name) { tag, attribute in
            attribute.value.map { "\(tag) \(attribute.name)=\"\($0.escapedForMarkup)\"" } ?? tag
        }
        open.append((name, lines.count))
        lines.append(margin + tag + ">")
    }

    /// Ends the innermost element.
    package mutating func end() {
        guard let element = open.last else { return }
        if lines.count == element.line + 1 {
            lines[element.line] = lines[element.line].dropLast() + "/>"
        } else {
            lines.append(margin + "</\(element.name)>")
        }
        open.removeLast()
    }

    /// Writes an element without content.
    package mutating func element(_ name: String, _ attributes: Attributes) {
        begin(name, attributes)
        end()
    }

    private var margin: String { String(repeating: "    ", count: open.count - 1) }
}
