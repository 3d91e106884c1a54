import LinuxSystem
import ManagedObjectModels
import PropertyLists
import SQLiteFormat
import SystemPackage
import XMLDocuments

/// A store of the type `NSXMLStoreType`: one XML document that Core Data reads and writes as a whole.
///
/// Apple doesn't document the format. It was derived from files that Core Data wrote, Xcode's mapping models among
/// them: `<database>` has `<databaseInfo>`, with a UUID and the metadata as a property list, and an `<object>` for each
/// object. An entity's name is in upper case, and a property's name in lower case. Values are elements' texts; an
/// absent one is nil. A relationship lists the ids of its objects, in their order if it is ordered.
package struct XMLStoreFile: Sendable {
    package let path: FilePath
    /// The whole file, from which the objects were read.
    package let bytes: [UInt8]
    /// The store's identity, in upper case; nil if the file has none.
    package let uuid: String?
    /// The metadata: hashes and identifiers of the model, and what the app has added.
    let metadata: [String: PropertyListValue]
    let objects: [XMLStoreObject]

    /// Returns true if the file's first bytes are those of an XML store. Throws `SystemError`.
    package static func isXMLStore(_ path: FilePath) throws -> Bool {
        guard let status = FileStatus(following: path), status.kind == .regular else { return false }
        let file = try Descriptor(opening: path, flags: 0)
        let sample = try file.read(count: FileFormat.sampleLength, at: 0, path: path)
        return FileFormat(firstBytes: sample, size: status.size) == .coreDataXML
    }

    /// Reads a file. Throws `XMLStoreError` and `SystemError`.
    package init(reading path: FilePath) throws {
        let file = try Descriptor(opening: path, flags: 0)
        var bytes: [UInt8] = []
        while true {
            let part = try file.read(count: 1 << 20, at: Int64(bytes.count), path: path)
            if part.isEmpty { break }
            bytes += part
            guard bytes.count <= Self.maximumSize else {
                throw XMLStoreError(
                    path, "the file is larger than \(Self.maximumSize >> 20) MiB",
                    remedy: "convert it with the app that wrote it")
            }
        }
        try self.init(bytes, of: path)
    }

    private static let maximumSize = 512 << 20

    package init(_ bytes: [UInt8], of path: FilePath) throws(XMLStoreError) {
        let remedy = "restore the file from a backup, or open it once with its app"
        let root: MarkupElement
        do throws(MarkupError) { root = try MarkupReader.read(bytes, limits: .store) } catch {
            throw XMLStoreError(path, error.message, line: error.line, remedy: remedy)
        }
        guard root.name == "database", let info = root.children(named: "databaseInfo").first else {
            throw XMLStoreError(path, "this isn't a Core Data XML store", line: root.line, remedy: "name one")
        }
        self.path = path
        self.bytes = bytes
        uuid = info.children(named: "UUID").first.flatMap {
            $0.text.trimmed.isEmpty ? nil : $0.text.trimmed.uppercased()
        }
        let list = info.children(named: "metadata").first?.children(named: "plist").first
        do throws(PropertyListError) {
            metadata = try list.map { list throws(PropertyListError) in try PropertyListValue(list) }?.dictionary ?? [:]
        } catch {
            throw XMLStoreError(path, "the metadata can't be read: \(error.message)", line: error.line, remedy: remedy)
        }
        for child in root.children where !["databaseInfo", "object"].contains(child.name) {
            throw XMLStoreError(path, "<\(child.name)> is unknown here", line: child.line, remedy: remedy)
        }
        let known = [(root, "databaseInfo"), (info, "UUID"), (info, "metadata")]
        for (element, name) in known where element.children(named: name).count > 1 {
            let line = element.children(named: name)[1].line
            throw XMLStoreError(path, "<\(name)> is there twice", line: line, remedy: remedy)
        }
        let metadataElements = info.children(named: "metadata")
        if let other = metadataElements.flatMap(\.children).enumerated().first(where: {
            $0.offset > 0 || $0.element.name != "plist"
        }) {
            throw XMLStoreError(
                path, "<\(other.element.name)> is unknown here", line: other.element.line, remedy: remedy)
        }
        for element in [root, info] + metadataElements {
            guard let line = element.textLine else { continue }
            throw XMLStoreError(path, "there is text in <\(element.name)>", line: line, remedy: remedy)
        }
        var objects: [XMLStoreObject] = []
        var seen: Set<String> = []
        for element in root.children(named: "object") {
            let object: XMLStoreObject
            do throws(XMLStoreObject.Fault) { object = try XMLStoreObject(element) } catch {
                throw XMLStoreError(path, error.reason, line: error.line, remedy: remedy)
            }
            guard seen.insert(object.id).inserted else {
                throw XMLStoreError(path, "two objects have the id “\(object.id)”", line: object.line, remedy: remedy)
            }
            objects.append(object)
        }
        self.objects = objects
    }

    /// The number of the store's objects.
    package var objectCount: Int { objects.count }

    /// The version hashes of the model's entities; empty if the file has none.
    package var versionHashes: [String: [UInt8]] {
        (metadata["NSStoreModelVersionHashes"]?.dictionary ?? [:]).compactMapValues(\.data)
    }
}

/// An `<object>` of an XML store.
struct XMLStoreObject: Sendable {
    struct Fault: Error {
        let reason: String
        let line: Int
    }

    struct Attribute: Sendable {
        let name: String
        let type: String
        let text: String
        let line: Int
    }

    struct Relationship: Sendable {
        let name: String
        /// The ids of the objects, in order.
        let references: [String]
        let line: Int
    }

    let id: String
    /// The entity's name in upper case.
    let type: String
    let attributes: [Attribute]
    let relationships: [Relationship]
    let line: Int

    init(_ element: MarkupElement) throws(Fault) {
        guard let id = element["id"], let type = element["type"], !id.isEmpty else {
            throw Fault(reason: "<object> needs an id and a type", line: element.line)
        }
        if let line = element.textLine { throw Fault(reason: "there is text in <object>", line: line) }
        var (attributes, relationships): ([Attribute], [Relationship]) = ([], [])
        for child in element.children {
            guard let name = child["name"] else {
                throw Fault(reason: "<\(child.name)> has no name", line: child.line)
            }
            switch child.name {
            case "attribute":
                guard child.children.isEmpty else {
                    throw Fault(reason: "the value of “\(name)” is an element", line: child.line)
                }
                attributes.append(Attribute(name: name, type: child["type"] ?? "", text: child.text, line: child.line))
            case "relationship":
                if let line = child.textLine ?? child.children.first?.line {
                    throw Fault(reason: "“\(name)” has content of its own", line: line)
                }
                let references = (child["idrefs"] ?? "").split(whereSeparator: \.isWhitespace).map(String.init)
                guard Set(references).count == references.count else {
                    throw Fault(reason: "“\(name)” lists an object twice", line: child.line)
                }
                relationships.append(Relationship(name: name, references: references, line: child.line))
            default: throw Fault(reason: "<\(child.name)> is unknown here", line: child.line)
            }
        }
        for names in [attributes.map(\.name), relationships.map(\.name)] where Set(names).count != names.count {
            throw Fault(reason: "the object “\(id)” has a property twice", line: element.line)
        }
        self.id = id
        self.type = type
        self.attributes = attributes
        self.relationships = relationships
        line = element.line
    }
}
