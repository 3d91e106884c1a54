import ManagedObjectModels
import StoreMigration
import SystemPackage

/// The reader of Core Data's XML stores, from the bytes to the new database.
enum XMLStoreReader {
    /// Two entities, one of which inherits, with each type of attribute and kind of relationship.
    private static func model() throws -> ManagedObjectModel {
        var note = EntityDescription(name: "Note")
        for (name, type) in [
            ("small", AttributeType.integer16), ("middle", .integer32), ("large", .integer64), ("price", .decimal),
            ("size", .double), ("ratio", .float), ("title", .string), ("flag", .boolean), ("day", .date),
            ("data", .binaryData), ("code", .uuid), ("link", .uri), ("thing", .transformable),
        ] {
            var attribute = AttributeDescription(name: name, type: type)
            attribute.isOptional = true
            note.attributes.append(attribute)
        }
        var tags = RelationshipDescription(name: "tags", destinationEntityName: "Tag")
        (tags.maxCount, tags.inverseName, tags.isOrdered) = (0, "notes", true)
        var notes = RelationshipDescription(name: "notes", destinationEntityName: "Note")
        (notes.maxCount, notes.inverseName) = (0, "tags")
        var next = RelationshipDescription(name: "next", destinationEntityName: "Note")
        next.inverseName = "previous"
        var previous = RelationshipDescription(name: "previous", destinationEntityName: "Note")
        previous.inverseName = "next"
        note.relationships = [tags, next, previous]
        var memo = EntityDescription(name: "Memo")
        memo.superentityName = "Note"
        var tag = EntityDescription(name: "Tag")
        tag.relationships = [notes]
        return try ManagedObjectModel(entities: [note, memo, tag])
    }

    private static let example = """
        <?xml version="1.0" standalone="yes"?>
        <!DOCTYPE database SYSTEM "file:///System/Library/DTDs/CoreData.dtd">
        <database><databaseInfo><version>134481920</version><UUID>C4FB3D23-093B-455B-8BB2-12E8793A4DFC</UUID>
        <nextObjectID>110</nextObjectID><metadata><plist version="1.0"><dict><key>own</key><integer>7</integer></dict>
        </plist></metadata></databaseInfo>
        <object type="NOTE" id="z102">
        <attribute name="small" type="int16">-5</attribute><attribute name="middle" type="int32">70000</attribute>
        <attribute name="large" type="int64">9007199254740993</attribute>
        <attribute name="price" type="decimal">12.50</attribute><attribute name="size" type="double">0.1</attribute>
        <attribute name="ratio" type="float">0.25</attribute><attribute name="flag" type="bool">1</attribute>
        <attribute name="title" type="string">\\u3c00note\\u3e00 &amp; more</attribute>
        <attribute name="day" type="date">445103622.25000000000000000000</attribute>
        <attribute name="data" type="binary">AAEC</attribute>
        <attribute name="code" type="uuid">C4FB3D23-093B-455B-8BB2-12E8793A4DFC</attribute>
        <attribute name="link" type="uri">https://example.com/</attribute>
        <attribute name="thing" type="transformable">YnBsaXN0MDA=</attribute>
        <relationship name="tags" type="0/0" destination="TAG" idrefs="z104 z105"></relationship>
        <relationship name="next" type="1/1" destination="NOTE" idrefs="z103"></relationship></object>
        <object type="MEMO" id="z103">
        <relationship name="previous" type="1/1" destination="NOTE" idrefs="z102"></relationship></object>
        <object type="TAG" id="z104"><relationship name="notes" type="0/0" destination="NOTE"></relationship></object>
        <object type="TAG" id="z105"></object></database>
        """

    static func reader(_ directory: FilePath) throws -> Reader {
        let model = try model()
        let store = directory.appending("converted.sqlite")
        let units = example.utf16.flatMap { unit -> [UInt8] in [UInt8(truncatingIfNeeded: unit), UInt8(unit >> 8)] }
        let wide: [UInt8] = [0xFF, 0xFE] + units
        let declared = ["ISO-8859-1", "windows-1252"].map {
            Array(example.replacing("version=\"1.0\" ", with: "version=\"1.0\" encoding=\"\($0)\" ").utf8)
        }
        return Reader(examples: [Array(example.utf8), wide] + declared) { bytes in
            guard let file = try? XMLStoreFile(bytes, of: "Old.xml") else { return .refused }
            do {
                var conversion = try XMLStoreConversion(file, of: model)
                try conversion.run(into: try XMLStoreReader.empty(store))
                return .accepted
            } catch let error as XMLStoreError {
                return error.message.contains("Old.xml") ? .refused : .wrong("an error without its path: \(error)")
            } catch let error as MigrationError where !error.isOfTheAudit {
                return .refused
            } catch {
                return .wrong("\(error)")
            }
        }
    }

    /// Returns the path of an empty file.
    private static func empty(_ path: FilePath) throws -> FilePath {
        let file = try FileDescriptor.open(
            path, .writeOnly, options: [.create, .truncate], permissions: [.ownerReadWrite])
        try file.close()
        return path
    }
}
