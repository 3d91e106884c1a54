/// One element of an XML document.
package struct MarkupElement: Sendable {
    package let name: String
    /// From 1.
    package let line: Int
    private let attributes: [(name: String, value: String)]
    package var children: [MarkupElement] = []
    /// What stands between the tags, its children's text left out.
    package var text = ""

    init(name: String, line: Int, attributes: [(name: String, value: String)]) {
        self.name = name
        self.line = line
        self.attributes = attributes
    }

    package subscript(attribute: String) -> String? { attributes.first { $0.name == attribute }?.value }

    package func children(named name: String) -> [MarkupElement] { children.filter { $0.name == name } }
}

/// Why bytes are no XML that is read here.
package struct MarkupError: Error, Equatable {
    package let message: String
    /// From 1.
    package let line: Int
}
