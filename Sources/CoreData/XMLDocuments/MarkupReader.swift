import PropertyLists

/// A reader of XML 1.0 documents (www.w3.org/TR/xml) through expat.
///
/// It reads the encodings that expat knows (UTF-8, UTF-16, ISO-8859-1, US-ASCII) and those that iconv(3) converts. It
/// rejects a document that declares entities, so it never expands one and never reads another file. It also rejects a
/// document that is too long or too deeply nested.
package enum MarkupReader {
    /// The size of a document that is read.
    package struct Limits: Sendable {
        let size: Int
        let elements: Int

        /// For models and property lists.
        package static let standard = Limits(size: PropertyListValue.maximumSize, elements: 1_000_000)
        /// For a whole store, which its app holds in memory as well.
        package static let store = Limits(size: 512 << 20, elements: 20_000_000)
    }

    /// Parses a document and returns its root element. Throws `MarkupError`.
    package static func read(
        _ bytes: [UInt8], limits: Limits = .standard
    ) throws(MarkupError) -> MarkupElement {
        guard bytes.count <= limits.size else {
            throw MarkupError(message: "the document is larger than \(limits.size >> 20) MiB", line: 1)
        }
        if let encoding = EncodingConversion.wideEncoding(of: bytes) {
            return try read(bytes, in: encoding, limits)
        }
        switch try MarkupParsing.parse(bytes, limits) {
        case .document(let root): return root
        case .encoding(let name): return try read(bytes, in: name, limits)
        }
    }

    /// Reads a document in an encoding that expat doesn't know.
    private static func read(
        _ bytes: [UInt8], in encoding: String, _ limits: Limits
    ) throws(MarkupError) -> MarkupElement {
        let converted = try EncodingConversion.utf8(bytes, from: encoding)
        switch try MarkupParsing.parse(converted, limits, isConverted: true) {
        case .document(let root): return root
        case .encoding(let name): throw MarkupError(message: "the encoding “\(name)” is unknown", line: 1)
        }
    }
}
