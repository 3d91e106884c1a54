/// An archive by `NSKeyedArchiver`: a property list whose `$objects` refer to each other by number.
package struct KeyedArchive {
    private let content: ArchiveContent
    package let root: ArchivedObject

    /// True if reading exceeded the element limit, so that later collections were returned empty.
    package var isExhausted: Bool { content.remainingElements < 0 }

    /// Reads an archive's property list. Throws `PropertyListError`.
    package init(_ list: PropertyListValue) throws(PropertyListError) {
        guard let members = list.dictionary, members["$archiver"]?.string == "NSKeyedArchiver",
            let objects = members["$objects"]?.array, let top = members["$top"]?.dictionary?["root"]?.uid
        else { throw PropertyListError("the property list is not a keyed archive") }
        content = ArchiveContent(objects)
        guard let root = ArchivedObject(top, content) else {
            throw PropertyListError("the archive's root is not an object")
        }
        self.root = root
    }
}

/// An archive's objects and a budget of collection elements. A collection is charged for each reference to it, so a
/// short archive can't expand to an enormous model.
private final class ArchiveContent {
    let objects: [PropertyListValue]
    private(set) var remainingElements = 250_000

    init(_ objects: [PropertyListValue]) { self.objects = objects }

    /// Charges the budget for `elements` and returns them, or none if the budget is exceeded.
    func charging(_ elements: [PropertyListValue]) -> [PropertyListValue] {
        remainingElements -= elements.count + 1
        return remainingElements < 0 ? [] : elements
    }
}

/// One object in a keyed archive. References may form cycles, so code that follows them recursively must limit its
/// depth.
package struct ArchivedObject {
    package let number: Int
    package let className: String
    private let fields: [String: PropertyListValue]
    private let content: ArchiveContent
    private var objects: [PropertyListValue] { content.objects }

    /// Returns nil if the number isn't that of an object with a class.
    fileprivate init?(_ number: Int, _ content: ArchiveContent) {
        let objects = content.objects
        guard objects.indices.contains(number), let fields = objects[number].dictionary,
            let classNumber = fields["$class"]?.uid, objects.indices.contains(classNumber),
            let className = objects[classNumber].dictionary?["$classname"]?.string
        else { return nil }
        self.number = number
        self.className = className
        self.fields = fields
        self.content = content
    }

    /// The field's value, with a reference resolved; nil if the field is missing or `nil` was archived.
    package subscript(field: String) -> PropertyListValue? {
        guard let value = fields[field] else { return nil }
        return Self.resolved(value, objects)
    }

    private static func resolved(_ value: PropertyListValue, _ objects: [PropertyListValue]) -> PropertyListValue? {
        guard case .uid(let number) = value else { return value }
        guard number != 0, objects.indices.contains(number) else { return nil }
        return objects[number]
    }

    /// Returns the object in `field`; nil if the field doesn't refer to an object with a class.
    package func object(_ field: String) -> ArchivedObject? {
        fields[field]?.uid.flatMap { $0 == 0 ? nil : ArchivedObject($0, content) }
    }

    /// Returns the text of a string or `NSMutableString`.
    package func string(_ field: String) -> String? { fields[field].flatMap(text) }

    private func text(_ value: PropertyListValue) -> String? {
        switch value {
        case .string(let text): text
        case .uid(let number) where number != 0 && objects.indices.contains(number):
            objects[number].string ?? ArchivedObject(number, content)?.string("NS.string")
        default: nil
        }
    }

    package func integer(_ field: String) -> Int64? {
        switch self[field] {
        case .integer(let value)?: value
        case .boolean(let value)?: value ? 1 : 0
        case .real(let value)?: Int64(exactly: value.rounded())
        default: nil
        }
    }

    package func isTrue(_ field: String) -> Bool { self[field]?.boolean ?? false }

    /// Returns those elements of the array or set in `field` that are objects.
    package func elements(_ field: String) -> [ArchivedObject] {
        references(field).compactMap { $0.uid.flatMap { ArchivedObject($0, content) } }
    }

    /// Returns those elements of the array or set in `field` that are text.
    package func strings(_ field: String) -> [String] { references(field).compactMap(text) }

    /// Returns the numbers of the array in `field`, with nil for an element that isn't an integer.
    package func numbers(_ field: String) -> [Int64?] {
        references(field).map { Self.resolved($0, objects)?.integer }
    }

    /// The elements of this array or set, each as an object or as text.
    package var ownElements: [(object: ArchivedObject?, text: String?)] {
        content.charging(fields["NS.objects"]?.array ?? []).map {
            ($0.uid.flatMap { ArchivedObject($0, content) }, text($0))
        }
    }

    private func references(_ field: String) -> [PropertyListValue] {
        content.charging(object(field)?.fields["NS.objects"]?.array ?? [])
    }

    /// Returns those members of the dictionary in `field` that have a string key. Core Data's `NSKnownKeysDictionary1`
    /// stores its keys in a separate object.
    package func members(_ field: String) -> [(key: String, value: ArchivedMember)] {
        object(field)?.ownMembers ?? []
    }

    /// Those members of this dictionary that have a string key.
    package var ownMembers: [(key: String, value: ArchivedMember)] {
        let keys: [PropertyListValue]
        let values: [PropertyListValue]
        if let mapping = object("searchMapping") {
            keys = mapping.references("keys")
            values = references("values")
        } else {
            keys = content.charging(fields["NS.keys"]?.array ?? [])
            values = fields["NS.objects"]?.array ?? []
        }
        return zip(keys, values).compactMap { key, value in
            text(key).map { ($0, ArchivedMember(value: value, text: text(value), content: content)) }
        }
    }
}

/// A value in an archived dictionary.
package struct ArchivedMember {
    fileprivate let value: PropertyListValue
    package let text: String?
    fileprivate let content: ArchiveContent

    fileprivate init(value: PropertyListValue, text: String?, content: ArchiveContent) {
        self.value = value
        self.text = text
        self.content = content
    }

    package var object: ArchivedObject? { value.uid.flatMap { ArchivedObject($0, content) } }

    /// Those elements that are objects, if the value is an array or set; otherwise empty.
    package var elements: [ArchivedObject] { object?.ownElements.compactMap(\.object) ?? [] }

    /// A number or Boolean as text; nil for any other value.
    package var scalarText: String? {
        switch value.uid.flatMap({ content.objects.indices.contains($0) ? content.objects[$0] : nil }) ?? value {
        case .integer(let number): "\(number)"
        case .real(let number): "\(number)"
        case .boolean(let truth): truth ? "1" : "0"
        default: nil
        }
    }
}
