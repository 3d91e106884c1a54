import FoundationEssentials
import PropertyLists

extension PropertyListValue {
    /// Parses a binary or XML property list; the first bytes determine the format. Throws `PropertyListError`.
    package init(parsing bytes: [UInt8]) throws(PropertyListError) {
        self = try Self.isBinary(bytes) ? PropertyListValue(binary: bytes) : XMLPropertyList.read(bytes)
    }

    /// Reads a `<plist>` element of a document. Throws `PropertyListError`.
    package init(_ element: MarkupElement) throws(PropertyListError) {
        self = try XMLPropertyList.value(ofList: element)
    }
}

extension KeyedArchive {
    /// Parses a binary or XML property list. Throws `PropertyListError`.
    package init(_ bytes: [UInt8]) throws(PropertyListError) { try self.init(PropertyListValue(parsing: bytes)) }
}

/// A reader of XML property lists (PropertyList-1.0.dtd, www.apple.com/DTDs).
enum XMLPropertyList {
    static func read(_ bytes: [UInt8]) throws(PropertyListError) -> PropertyListValue {
        let root: MarkupElement
        do throws(MarkupError) { root = try MarkupReader.read(bytes) } catch {
            throw PropertyListError(error.message, line: error.line)
        }
        return try value(ofList: root)
    }

    /// Reads a `<plist>`, which may be part of a document.
    static func value(ofList root: MarkupElement) throws(PropertyListError) -> PropertyListValue {
        guard root.name == "plist" else { throw PropertyListError("the root element is not <plist>", line: root.line) }
        try checkText(root)
        guard let content = root.children.first, root.children.count == 1 else {
            throw PropertyListError("a <plist> must hold exactly one value", line: root.line)
        }
        return try value(content)
    }

    private static func value(_ element: MarkupElement) throws(PropertyListError) -> PropertyListValue {
        let text = element.text
        if ["array", "dict", "true", "false"].contains(element.name) {
            try checkText(element)
        } else if let child = element.children.first {
            throw PropertyListError("<\(element.name)> contains <\(child.name)>", line: child.line)
        }
        switch element.name {
        case "true": return .boolean(true)
        case "false": return .boolean(false)
        case "string": return .string(text)
        case "integer":
            if let value = Int64(text.trimmed) { return .integer(value) }
            if let value = UInt64(text.trimmed) { return .unsigned(value) }
        case "real":
            if let value = text.trimmed.number(as: Double.self) { return .real(value) }
        case "date":
            if let date = try? Date(text.trimmed, strategy: .iso8601) {
                return .date(date.timeIntervalSinceReferenceDate)
            }
        case "data":
            // Foundation's lenient decoder would drop what it doesn't know.
            let digits = text.utf8.filter { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
            if let data = Data(base64Encoded: Data(digits)) { return .data(Array(data)) }
        case "array":
            var found: [PropertyListValue] = []
            for child in element.children { found.append(try value(child)) }
            return .array(found)
        case "dict": return try dictionary(element)
        default: throw PropertyListError("<\(element.name)> is not a property list element", line: element.line)
        }
        throw PropertyListError("<\(element.name)> has an invalid value", line: element.line)
    }

    /// Refuses text where only elements belong.
    private static func checkText(_ element: MarkupElement) throws(PropertyListError) {
        guard let line = element.textLine else { return }
        throw PropertyListError("there is text in <\(element.name)>", line: line)
    }

    /// Reads a dictionary. A keyed archive's reference is written as a dictionary whose only key is `CF$UID`.
    private static func dictionary(_ element: MarkupElement) throws(PropertyListError) -> PropertyListValue {
        var found: [String: PropertyListValue] = [:]
        var children = element.children.makeIterator()
        while let key = children.next() {
            guard key.name == "key", let member = children.next() else {
                throw PropertyListError("a <dict> must alternate keys and values", line: key.line)
            }
            found[key.text] = try value(member)
        }
        if found.count == 1, case .integer(let reference)? = found["CF$UID"], let uid = Int(exactly: reference) {
            return .uid(uid)
        }
        return .dictionary(found)
    }
}

extension String {
    /// The string without white space at either end.
    package var trimmed: String {
        let kept = drop { $0.isWhitespace }
        return String(kept[..<(kept.lastIndex { !$0.isWhitespace }.map { kept.index(after: $0) } ?? kept.startIndex)])
    }
}
