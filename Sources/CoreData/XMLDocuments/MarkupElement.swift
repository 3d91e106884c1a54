/// An element of an XML document.
package struct MarkupElement: Sendable {
    package let name: String
    /// The line of the start tag, counted from 1.
    package let line: Int
    private let attributes: [(name: String, value: String)]
    package var children: [MarkupElement] = []
    /// The text between the tags, without the children's text.
    package var text = ""
    /// The line of the first text that isn't white space, counted from 1; nil if there is none.
    package var textLine: Int?

    init(name: String, line: Int, attributes: [(name: String, value: String)]) {
        self.name = name
        self.line = line
        self.attributes = attributes
    }

    package subscript(attribute: String) -> String? { attributes.first { $0.name == attribute }?.value }

    package func children(named name: String) -> [MarkupElement] { children.filter { $0.name == name } }
}

/// The reason why a document was rejected.
package struct MarkupError: Error, Equatable {
    package let message: String
    /// The line of the error, counted from 1.
    package let line: Int
}
