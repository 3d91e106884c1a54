/// Reads an XML 1.0 document (www.w3.org/TR/xml) in UTF-8: elements, attributes, text, CDATA, comments, processing
/// instructions, a document type without declarations of its own.
///
/// A document that declares entities is refused, so that none can be expanded and nothing else is ever read; what is
/// nested too deep or too long is refused too.
package struct MarkupReader {
    private static let longest = 64 << 20
    private static let deepest = 64
    private static let mostElements = 1_000_000
    private static let mostAttributes = 100

    private let bytes: [UInt8]
    private var position = 0
    private var line = 1
    private var countedTo = 0
    private var open: [MarkupElement] = []
    private var root: MarkupElement?
    private var elements = 0

    /// The document's root. Throws `MarkupError`.
    package static func read(_ bytes: [UInt8]) throws(MarkupError) -> MarkupElement {
        guard bytes.count <= longest else {
            throw MarkupError(message: "the document has more than \(longest >> 20) MiB", line: 1)
        }
        guard !bytes.starts(with: [0xFE, 0xFF]), !bytes.starts(with: [0xFF, 0xFE]) else {
            throw MarkupError(message: "the document is in UTF-16; only UTF-8 is read", line: 1)
        }
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw MarkupError(message: "the document is not in UTF-8", line: 1)
        }
        var reader = MarkupReader(bytes)
        return try reader.document()
    }

    private init(_ bytes: [UInt8]) {
        self.bytes = bytes
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
        if let unclosed = open.last { throw error("<\(unclosed.name)> of line \(unclosed.line) is not closed") }
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
            guard position < bytes.count else { throw error("<\(name)> ends with the document") }
            if bytes[position] == UInt8(ascii: ">") || begins("/>") { break }
            guard hadSpace else { throw error("white space is missing in <\(name)>") }
            let attribute = try attribute(of: name)
            guard !attributes.contains(where: { $0.name == attribute.name }) else {
                throw error("<\(name)> has “\(attribute.name)” twice")
            }
            guard attributes.count < Self.mostAttributes else { throw error("<\(name)> has too many attributes") }
            attributes.append(attribute)
        }
        elements += 1
        guard elements <= Self.mostElements else { throw error("there are more than \(Self.mostElements) elements") }
        guard open.count < Self.deepest else { throw error("elements are nested more than \(Self.deepest) deep") }
        guard root == nil else { throw error("<\(name)> follows the document's end") }
        let element = MarkupElement(name: name, line: start, attributes: attributes)
        let isEmpty = bytes[position] == UInt8(ascii: "/")
        position += isEmpty ? 2 : 1
        if isEmpty { close(element) } else { open.append(element) }
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
        guard let end = bytes[start...].firstIndex(of: quote) else { throw error("the value of “\(name)” has no end") }
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
        guard let element = open.popLast() else { throw error("</\(name)> closes what was not opened") }
        guard element.name == name else {
            throw error("</\(name)> closes <\(element.name)> of line \(element.line)")
        }
        position += 1
        close(element)
    }

    private mutating func close(_ element: MarkupElement) {
        if open.isEmpty { root = element } else { open[open.count - 1].children.append(element) }
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
        if open.isEmpty {
            guard content.allSatisfy(\.isWhitespace) else { throw error("there is text outside of the root element") }
        } else {
            open[open.count - 1].text += content
        }
    }

    private mutating func documentType() throws(MarkupError) {
        guard open.isEmpty, root == nil else { throw error("a document type stands at the wrong place") }
        guard let end = bytes[position...].firstIndex(where: { [UInt8(ascii: ">"), UInt8(ascii: "[")].contains($0) })
        else { throw error("the document type has no end") }
        guard bytes[end] == UInt8(ascii: ">") else { throw error("the document declares entities of its own") }
        position = end + 1
    }

    private mutating func skip(past end: String, from offset: Int, _ what: String) throws(MarkupError) {
        let marker = Array(end.utf8)
        var index = position + offset
        while index + marker.count <= bytes.count {
            if bytes[index] == marker[0], bytes[index..<index + marker.count].elementsEqual(marker) {
                position = index + marker.count
                return
            }
            index += 1
        }
        throw error("\(what) has no end")
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

    private mutating func name(_ what: String) throws(MarkupError) -> String {
        let start = position
        while position < bytes.count, Self.isNameByte(bytes[position], isFirst: position == start) { position += 1 }
        guard position > start else { throw error("\(what) is missing or begins with a wrong character") }
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

    /// The text with its references replaced; white space in an attribute is spaces (section 3.3.3).
    private mutating func resolved(_ raw: ArraySlice<UInt8>, isAttribute: Bool) throws(MarkupError) -> String {
        var found: [UInt8] = []
        found.reserveCapacity(raw.count)
        var index = raw.startIndex
        while index < raw.endIndex {
            let byte = raw[index]
            if byte == UInt8(ascii: "&") {
                guard let end = raw[index...].prefix(12).firstIndex(of: UInt8(ascii: ";")) else {
                    throw error("“&” begins no reference")
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
                throw error("“&\(text);” is no known reference")
            }
            return String(scalar)
        }
    }

    // MARK: Lines

    private mutating func currentLine() -> Int {
        for index in countedTo..<position where bytes[index] == 0x0A { line += 1 }
        countedTo = max(countedTo, position)
        return line
    }

    private mutating func error(_ message: String) -> MarkupError {
        position = min(position, bytes.count)
        return MarkupError(message: message, line: currentLine())
    }
}
