/// What `NSKeyedArchiver` writes: a property list whose `$objects` refer to each other by number.
package struct KeyedArchive {
    private let content: ArchiveContent
    package let root: ArchivedObject

    /// Whether more was asked of it than any model has, and the rest was left out.
    package var isExhausted: Bool { content.left < 0 }

    /// Throws `PropertyListError`.
    package init(_ bytes: [UInt8]) throws(PropertyListError) {
        let list = try PropertyListValue(parsing: bytes)
        guard let members = list.dictionary, members["$archiver"]?.string == "NSKeyedArchiver",
            let objects = members["$objects"]?.array, let top = members["$top"]?.dictionary?["root"]?.uid
        else { throw PropertyListError("the property list is no keyed archive") }
        content = ArchiveContent(objects)
        guard let root = ArchivedObject(top, content) else {
            throw PropertyListError("the archive's root is no object")
        }
        self.root = root
    }
}

/// An archive's objects, and how many elements of collections may still be read: a collection counts as often as it is
/// referred to, so that a short archive can't stand for an enormous model.
private final class ArchiveContent {
    let objects: [PropertyListValue]
    private(set) var left = 250_000

    init(_ objects: [PropertyListValue]) { self.objects = objects }

    func spend(_ elements: [PropertyListValue]) -> [PropertyListValue] {
        left -= elements.count + 1
        return left < 0 ? [] : elements
    }
}

/// One object in a keyed archive. Objects may refer to each other in circles: who follows references by recursion
/// bounds its depth.
package struct ArchivedObject {
    package let number: Int
    package let className: String
    private let fields: [String: PropertyListValue]
    private let content: ArchiveContent
    private var objects: [PropertyListValue] { content.objects }

    /// Nil when the number is no object's with a class.
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

    /// The field's value, a reference to a plain value followed. Nil when there is none, or `nil` was archived.
    package subscript(field: String) -> PropertyListValue? {
        guard let value = fields[field] else { return nil }
        return Self.plain(value, objects)
    }

    private static func plain(_ value: PropertyListValue, _ objects: [PropertyListValue]) -> PropertyListValue? {
        guard case .uid(let number) = value else { return value }
        guard number != 0, objects.indices.contains(number) else { return nil }
        return objects[number]
    }

    /// Nil when the field refers to no object with a class.
    package func object(_ field: String) -> ArchivedObject? {
        fields[field]?.uid.flatMap { $0 == 0 ? nil : ArchivedObject($0, content) }
    }

    /// Text, an `NSMutableString` too.
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

    /// The elements of the array or set in `field`: those that are objects.
    package func elements(_ field: String) -> [ArchivedObject] {
        references(field).compactMap { $0.uid.flatMap { ArchivedObject($0, content) } }
    }

    /// The elements of the array or set in `field`: those that are text.
    package func strings(_ field: String) -> [String] { references(field).compactMap(text) }

    /// The numbers in the array in `field`; nil for an element that is none.
    package func numbers(_ field: String) -> [Int64?] {
        references(field).map { Self.plain($0, objects)?.integer }
    }

    /// The elements of this array or set itself, each as an object or as text.
    package var ownElements: [(object: ArchivedObject?, text: String?)] {
        content.spend(fields["NS.objects"]?.array ?? []).map {
            ($0.uid.flatMap { ArchivedObject($0, content) }, text($0))
        }
    }

    private func references(_ field: String) -> [PropertyListValue] {
        content.spend(object(field)?.fields["NS.objects"]?.array ?? [])
    }

    /// The members of the dictionary in `field`, those with text for a key; Core Data's own `NSKnownKeysDictionary1`
    /// keeps its keys apart.
    package func members(_ field: String) -> [(key: String, value: ArchivedMember)] {
        object(field)?.ownMembers ?? []
    }

    /// The members of this dictionary itself, those with text for a key.
    package var ownMembers: [(key: String, value: ArchivedMember)] {
        let keys: [PropertyListValue]
        let values: [PropertyListValue]
        if let mapping = object("searchMapping") {
            keys = mapping.references("keys")
            values = references("values")
        } else {
            keys = content.spend(fields["NS.keys"]?.array ?? [])
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

    /// The elements, those that are objects, when it is an array or set.
    package var elements: [ArchivedObject] { object?.ownElements.compactMap(\.object) ?? [] }

    /// A number or truth value as text; nil for anything else.
    package var plainText: String? {
        switch value.uid.flatMap({ content.objects.indices.contains($0) ? content.objects[$0] : nil }) ?? value {
        case .integer(let number): "\(number)"
        case .real(let number): "\(number)"
        case .boolean(let truth): truth ? "1" : "0"
        default: nil
        }
    }
}
