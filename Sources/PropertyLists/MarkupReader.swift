/// A reader of XML 1.0 documents (www.w3.org/TR/xml) in UTF-8: elements, attributes, text, CDATA, comments, processing
/// instructions, and a document type without an internal subset.
///
/// Hand-written because FoundationXML would bring libxml2 into every program that reads a model.
///
/// The reader rejects a document that declares entities, so it never expands one and never reads another file. It also
/// rejects a document that is too long or too deeply nested.
package struct MarkupReader {
    /// The size of a document that is read.
    package struct Limits: Sendable {
        let size: Int
        let elements: Int

        /// For models and property lists.
        package static let standard = Limits(size: PropertyListValue.maximumSize, elements: 1_000_000)
        /// For a whole store, which its app holds in memory as well.
        package static let store = Limits(size: 512 << 20, elements: 20_000_000)
    }

    private static let maximumDepth = PropertyListValue.maximumDepth
    private static let maximumAttributeCount = 100

    private let limits: Limits

    private let bytes: [UInt8]
    private var position = 0
    private var line = 1
    private var countedPosition = 0
    private var openElements: [MarkupElement] = []
    private var root: MarkupElement?
    private var elementCount = 0

    /// Parses a document and returns its root element. Throws `MarkupError`.
    package static func read(
        _ bytes: [UInt8], limits: Limits = .standard
    ) throws(MarkupError) -> MarkupElement {
        guard bytes.count <= limits.size else {
            throw MarkupError(message: "the document is larger than \(limits.size >> 20) MiB", line: 1)
        }
        guard !bytes.starts(with: [0xFE, 0xFF]), !bytes.starts(with: [0xFF, 0xFE]) else {
            throw MarkupError(message: "the document is in UTF-16; only UTF-8 is supported", line: 1)
        }
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw MarkupError(message: "the document is not valid UTF-8", line: 1)
        }
        var reader = MarkupReader(bytes, limits)
        return try reader.document()
    }

    private init(_ bytes: [UInt8], _ limits: Limits) {
        self.bytes = bytes
        self.limits = limits
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { position = 3 }
    }

    private mutating func document() throws(MarkupError) -> MarkupElement {
        while position < bytes.count {
            if bytes[position] != UInt8(ascii: "<") {
                try text()
            } else if begins("<!--") {
                try skip(past: "-->", from: 4, "a comment")
            } else if begins("<![CDATA[") {
                try characterData()
            } else if begins("<?") {
                try skip(past: "?>", from: 2, "a processing instruction")
            } else if begins("<!DOCTYPE") {
                try documentType()
            } else if begins("</") {
                try endTag()
            } else {
                try startTag()
            }
        }
        if let unclosed = openElements.last { throw error("<\(unclosed.name)> of line \(unclosed.line) is not closed") }
        guard let root else { throw error("the document has no element") }
        return root
    }

    // MARK: Tags

    private mutating func startTag() throws(MarkupError) {
        let start = currentLine()
        position += 1
        let name = try name("an element's name")
        var attributes: [(name: String, value: String)] = []
        while true {
            let hadSpace = skipSpace()
            guard position < bytes.count else { throw error("the document ends inside <\(name)>") }
            if bytes[position] == UInt8(ascii: ">") || begins("/>") { break }
            guard hadSpace else { throw error("white space is missing in <\(name)>") }
            let attribute = try attribute(of: name)
            guard !attributes.contains(where: { $0.name == attribute.name }) else {
                throw error("<\(name)> has “\(attribute.name)” twice")
            }
            guard attributes.count < Self.maximumAttributeCount else {
                throw error("<\(name)> has too many attributes")
            }
            attributes.append(attribute)
        }
        elementCount += 1
        guard elementCount <= limits.elements else {
            throw error("the document has more than \(limits.elements) elements")
        }
        guard openElements.count < Self.maximumDepth else {
            throw error("elements are nested more than \(Self.maximumDepth) levels deep")
        }
        guard root == nil else { throw error("<\(name)> follows the document's end") }
        let element = MarkupElement(name: name, line: start, attributes: attributes)
        let isEmpty = bytes[position] == UInt8(ascii: "/")
        position += isEmpty ? 2 : 1
        if isEmpty { close(element) } else { openElements.append(element) }
    }

    private mutating func attribute(of element: String) throws(MarkupError) -> (name: String, value: String) {
        let name = try name("an attribute's name")
        skipSpace()
        guard position < bytes.count, bytes[position] == UInt8(ascii: "=") else {
            throw error("“\(name)” of <\(element)> has no value")
        }
        position += 1
        skipSpace()
        guard position < bytes.count, [UInt8(ascii: "\""), UInt8(ascii: "'")].contains(bytes[position]) else {
            throw error("the value of “\(name)” is not in quotation marks")
        }
        let quote = bytes[position]
        let start = position + 1
        guard let end = bytes[start...].firstIndex(of: quote) else {
            throw error("the value of “\(name)” is not terminated")
        }
        guard !bytes[start..<end].contains(UInt8(ascii: "<")) else {
            throw error("the value of “\(name)” contains “<”")
        }
        let value = try resolved(bytes[start..<end], isAttribute: true)
        position = end + 1
        return (name, value)
    }

    private mutating func endTag() throws(MarkupError) {
        position += 2
        let name = try name("an element's name")
        skipSpace()
        guard position < bytes.count, bytes[position] == UInt8(ascii: ">") else { throw error("</\(name) has no “>”") }
        guard let element = openElements.popLast() else {
            throw error("</\(name)> closes an element that was not opened")
        }
        guard element.name == name else {
            throw error("</\(name)> closes <\(element.name)> of line \(element.line)")
        }
        position += 1
        close(element)
    }

    private mutating func close(_ element: MarkupElement) {
        if openElements.isEmpty {
            root = element
        } else {
            openElements[openElements.count - 1].children.append(element)
        }
    }

    // MARK: Between tags

    private mutating func text() throws(MarkupError) {
        let end = bytes[position...].firstIndex(of: UInt8(ascii: "<")) ?? bytes.count
        let content = try resolved(bytes[position..<end], isAttribute: false)
        try append(content)
        position = end
    }

    private mutating func characterData() throws(MarkupError) {
        let start = position + 9
        try skip(past: "]]>", from: 9, "CDATA")
        try append(String(decoding: bytes[start..<position - 3], as: UTF8.self))
    }

    private mutating func append(_ content: String) throws(MarkupError) {
        if openElements.isEmpty {
            guard content.allSatisfy(\.isWhitespace) else { throw error("there is text outside the root element") }
        } else {
            openElements[openElements.count - 1].text += content
        }
    }

    private mutating func documentType() throws(MarkupError) {
        guard openElements.isEmpty, root == nil else { throw error("a document type is in the wrong place") }
        guard let end = bytes[position...].firstIndex(where: { [UInt8(ascii: ">"), UInt8(ascii: "[")].contains($0) })
        else { throw error("the document type is not terminated") }
        guard bytes[end] == UInt8(ascii: ">") else { throw error("the document declares entities") }
        position = end + 1
    }

    private mutating func skip(past end: String, from offset: Int, _ construct: String) throws(MarkupError) {
        let marker = Array(end.utf8)
        var index = position + offset
        while index + marker.count <= bytes.count {
            if bytes[index] == marker[0], bytes[index..<index + marker.count].elementsEqual(marker) {
                position = index + marker.count
                return
            }
            index += 1
        }
        throw error("\(construct) is not terminated")
    }

    // MARK: Characters

    private func begins(_ text: StaticString) -> Bool {
        guard position + text.utf8CodeUnitCount <= bytes.count else { return false }
        return text.withUTF8Buffer { $0.elementsEqual(bytes[position..<position + $0.count]) }
    }

    @discardableResult
    private mutating func skipSpace() -> Bool {
        let start = position
        while position < bytes.count, [0x20, 0x09, 0x0A, 0x0D].contains(bytes[position]) { position += 1 }
        return position > start
    }

    private mutating func name(_ description: String) throws(MarkupError) -> String {
        let start = position
        while position < bytes.count, Self.isNameByte(bytes[position], isFirst: position == start) { position += 1 }
        guard position > start else { throw error("\(description) is missing or begins with an invalid character") }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private static func isNameByte(_ byte: UInt8, isFirst: Bool) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
            UInt8(ascii: ":"), 0x80...:
            true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."): !isFirst
        default: false
        }
    }

    /// Returns the text with its references replaced. White space in an attribute becomes spaces (section 3.3.3).
    private mutating func resolved(_ raw: ArraySlice<UInt8>, isAttribute: Bool) throws(MarkupError) -> String {
        var found: [UInt8] = []
        found.reserveCapacity(raw.count)
        var index = raw.startIndex
        while index < raw.endIndex {
            let byte = raw[index]
            if byte == UInt8(ascii: "&") {
                guard let end = raw[index...].prefix(12).firstIndex(of: UInt8(ascii: ";")) else {
                    throw error("“&” does not begin a reference")
                }
                found += Array(try character(raw[index + 1..<end]).utf8)
                index = end + 1
                continue
            }
            guard byte >= 0x20 || [0x09, 0x0A, 0x0D].contains(byte) else { throw error("there is a control character") }
            found.append(isAttribute && byte < 0x20 ? 0x20 : byte)
            index += 1
        }
        return String(decoding: found, as: UTF8.self)
    }

    private mutating func character(_ reference: ArraySlice<UInt8>) throws(MarkupError) -> String {
        let text = String(decoding: reference, as: UTF8.self)
        switch text {
        case "lt": return "<"
        case "gt": return ">"
        case "amp": return "&"
        case "quot": return "\""
        case "apos": return "'"
        default:
            let digits = text.hasPrefix("#x") ? UInt32(text.dropFirst(2), radix: 16) : UInt32(text.dropFirst())
            guard text.hasPrefix("#"), let digits, digits != 0, let scalar = Unicode.Scalar(digits) else {
                throw error("“&\(text);” is not a known reference")
            }
            return String(scalar)
        }
    }

    // MARK: Lines

    private mutating func currentLine() -> Int {
        for index in countedPosition..<position where bytes[index] == 0x0A { line += 1 }
        countedPosition = max(countedPosition, position)
        return line
    }

    private mutating func error(_ message: String) -> MarkupError {
        position = min(position, bytes.count)
        return MarkupError(message: message, line: currentLine())
    }
}
