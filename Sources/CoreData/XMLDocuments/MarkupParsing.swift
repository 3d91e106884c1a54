import CExpat
import PropertyLists

/// One pass of expat over a document. A class, since expat's handlers get its address.
final class MarkupParsing {
    enum Outcome {
        case document(MarkupElement)
        /// The document is in this encoding, which expat doesn't know.
        case encoding(String)
    }

    private static let maximumDepth = PropertyListValue.maximumDepth
    private static let maximumAttributeCount = 100

    private let bytes: [UInt8]
    private let limits: MarkupReader.Limits
    private let parser: XML_Parser
    /// The elements that have begun and not ended.
    private var open: [MarkupElement] = []
    private var root: MarkupElement?
    /// The text since the last tag.
    private var text: [UInt8] = []
    private var elementCount = 0
    private var hasDocumentType = false
    private var unknownEncoding: String?
    private var fault: MarkupError?

    /// Parses a document. `isConverted` means that it was converted to UTF-8, whatever it declares. Throws
    /// `MarkupError`.
    static func parse(
        _ bytes: [UInt8], _ limits: MarkupReader.Limits, isConverted: Bool = false
    ) throws(MarkupError) -> Outcome {
        guard bytes.count <= Int(Int32.max), let parser = XML_ParserCreate(isConverted ? "UTF-8" : nil) else {
            throw MarkupError(message: "there is no memory for the document", line: 1)
        }
        defer { XML_ParserFree(parser) }
        return try MarkupParsing(bytes, limits, parser).run()
    }

    private init(_ bytes: [UInt8], _ limits: MarkupReader.Limits, _ parser: XML_Parser) {
        self.bytes = bytes
        self.limits = limits
        self.parser = parser
    }

    private func run() throws(MarkupError) -> Outcome {
        setHandlers()
        let status = withExtendedLifetime(self) {
            bytes.withUnsafeBytes { document in
                document.withMemoryRebound(to: CChar.self) {
                    XML_Parse(parser, $0.baseAddress, Int32(clamping: $0.count), 1)
                }
            }
        }
        if let unknownEncoding { return .encoding(unknownEncoding) }
        if let fault { throw fault }
        guard status == XML_STATUS_OK, let root else { throw error() }
        return .document(root)
    }

    // MARK: Handlers

    private static func of(_ context: UnsafeMutableRawPointer?) -> MarkupParsing? {
        context.map { Unmanaged<MarkupParsing>.fromOpaque($0).takeUnretainedValue() }
    }

    private func setHandlers() {
        let context = Unmanaged.passUnretained(self).toOpaque()
        XML_SetUserData(parser, context)
        XML_SetElementHandler(
            parser, { MarkupParsing.of($0)?.begin($1, $2) }, { context, _ in MarkupParsing.of(context)?.end() })
        XML_SetCharacterDataHandler(parser) { context, text, count in
            guard let text else { return }
            MarkupParsing.of(context)?.append(
                UnsafeRawBufferPointer(start: text, count: Int(count)))
        }
        XML_SetStartDoctypeDeclHandler(parser) { context, _, _, _, _ in
            MarkupParsing.of(context)?.hasDocumentType = true
        }
        XML_SetEntityDeclHandler(parser) { context, name, _, _, _, _, _, _, _ in
            MarkupParsing.of(context)?.refuse("the document declares entities: \(MarkupParsing.string(name))")
        }
        // expat doesn't know all entities of a document with an external type, which isn't read.
        XML_SetSkippedEntityHandler(parser) { context, name, _ in
            MarkupParsing.of(context)?.refuseReference(to: MarkupParsing.string(name))
        }
        XML_SetUnknownEncodingHandler(
            parser,
            { context, name, _ in
                MarkupParsing.of(context)?.unknownEncoding = MarkupParsing.string(name)
                return Int32(XML_STATUS_ERROR.rawValue)
            }, context)
    }

    private static func string(_ text: UnsafePointer<XML_Char>?) -> String { text.map { String(cString: $0) } ?? "" }

    private func begin(
        _ name: UnsafePointer<XML_Char>?, _ values: UnsafeMutablePointer<UnsafePointer<XML_Char>?>?
    ) {
        guard fault == nil else { return }
        let name = MarkupParsing.string(name)
        var attributes: [(name: String, value: String)] = []
        if let values {
            for index in stride(from: 0, to: Int.max, by: 2) {
                guard let attribute = values[index] else { break }
                guard attributes.count < Self.maximumAttributeCount else {
                    return refuse("<\(name)> has too many attributes")
                }
                attributes.append((MarkupParsing.string(attribute), MarkupParsing.string(values[index + 1])))
            }
        }
        elementCount += 1
        guard elementCount <= limits.elements else {
            return refuse("the document has more than \(limits.elements) elements")
        }
        guard open.count < Self.maximumDepth else {
            return refuse("elements are nested more than \(Self.maximumDepth) levels deep")
        }
        if hasDocumentType, !attributes.isEmpty, let entity = unknownEntityInTag() {
            return refuseReference(to: entity)
        }
        flushText()
        open.append(MarkupElement(name: name, line: line, attributes: attributes))
    }

    private func end() {
        guard fault == nil else { return }
        flushText()
        guard let element = open.popLast() else { return }
        if open.isEmpty { root = element } else { open[open.count - 1].children.append(element) }
    }

    private func append(_ part: UnsafeRawBufferPointer) {
        guard fault == nil else { return }
        text += part
        guard let last = open.indices.last, open[last].textLine == nil,
            part.contains(where: { ![0x20, 0x09, 0x0A, 0x0D].contains($0) })
        else { return }
        open[last].textLine = line
    }

    private func flushText() {
        guard !text.isEmpty, let last = open.indices.last else { return }
        open[last].text += String(decoding: text, as: UTF8.self)
        text.removeAll(keepingCapacity: true)
    }

    // MARK: References

    private static let knownReferences: Set<Substring> = ["lt", "gt", "amp", "quot", "apos"]

    /// Returns a reference in the current start tag that isn't to one of XML's own entities. In a document with an
    /// external type, expat leaves out such a reference in an attribute, and reports nothing.
    private func unknownEntityInTag() -> String? {
        let start = Int(XML_GetCurrentByteIndex(parser))
        let end = start + Int(XML_GetCurrentByteCount(parser))
        guard start >= 0, start < end, end <= bytes.count, bytes[start..<end].contains(UInt8(ascii: "&")) else {
            return nil
        }
        return tag(bytes[start..<end]).split(separator: "&", omittingEmptySubsequences: false).dropFirst()
            .map { $0.prefix { $0 != ";" } }
            .first { !$0.hasPrefix("#") && !Self.knownReferences.contains($0) }.map(String.init)
    }

    /// Decodes a tag, in which only ASCII characters matter.
    private func tag(_ bytes: ArraySlice<UInt8>) -> String {
        let isBigEndian = self.bytes.starts(with: [0xFE, 0xFF]) || self.bytes.starts(with: [0, 0x3C])
        let isLittleEndian = self.bytes.starts(with: [0xFF, 0xFE]) || self.bytes.starts(with: [0x3C, 0])
        guard isBigEndian || isLittleEndian else { return String(decoding: bytes, as: UTF8.self) }
        let units = stride(from: bytes.startIndex, to: bytes.endIndex - 1, by: 2).map { index in
            let (first, second) = (UInt16(bytes[index]), UInt16(bytes[index + 1]))
            return isBigEndian ? first << 8 | second : second << 8 | first
        }
        return String(decoding: units, as: UTF16.self)
    }

    // MARK: Errors

    private var line: Int { Int(XML_GetCurrentLineNumber(parser)) }

    private func refuseReference(to entity: String) { refuse("“&\(entity);” is not a known reference") }

    private func refuse(_ message: String) {
        if fault == nil { fault = MarkupError(message: message, line: line) }
        _ = XML_StopParser(parser, 0)
    }

    /// Returns expat's error, with the element that is concerned.
    private func error() -> MarkupError {
        let code = XML_GetErrorCode(parser)
        let reason = XML_ErrorString(code).map { String(cString: $0) } ?? "error \(code.rawValue)"
        let element = open.last.map { "<\($0.name)> of line \($0.line)" }
        let message =
            switch code {
            case XML_ERROR_NO_ELEMENTS: element.map { "\($0) is not closed" } ?? "the document has no element"
            case XML_ERROR_TAG_MISMATCH: "\(reason): \(element ?? "no element") is open"
            case XML_ERROR_INVALID_TOKEN: "not well-formed: a character is invalid here or in the document's encoding"
            default: reason
            }
        return MarkupError(message: message, line: line)
    }
}
