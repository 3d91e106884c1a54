import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import ManagedObjectModels

@Suite struct XMLModelWriterTests {
    private func rewritten(_ model: ManagedObjectModel) throws -> ManagedObjectModel {
        try XMLModelReaderTests.read(model.sourceDocument()).model
    }

    @Test func writesEverythingThatTheReaderReads() throws {
        let model = try XMLModelReaderTests.read(XMLModelReaderTests.model).model
        #expect(try rewritten(model) == model)
    }

    @Test func escapesTextsAndLimits() throws {
        var title = AttributeDescription(name: "title", type: .string)
        title.defaultValue = .string("a <b> & \"c\"\n\td")
        title.renamingIdentifier = "é\"&"
        title.userInfo = ["k\n": "v\r"]
        title.validations = [
            ValidationRule(predicate: "SELF MATCHES \"\\\\w+\\\"<\"", errorCode: 1680),
            ValidationRule(predicate: "length >= 3", errorCode: 1670),
        ]
        var real = AttributeDescription(name: "real", type: .double)
        real.defaultValue = .real(0.1)
        var when = AttributeDescription(name: "when", type: .date)
        when.defaultValue = .date(-1.5)
        var note = EntityDescription(name: "Note")
        note.attributes = [real, title, when]
        let model = try ManagedObjectModel(entities: [note], versionIdentifiers: [""])
        let read = try rewritten(model).entities[0].attributes
        #expect(read[0] == real)
        #expect(read[1].defaultValue == title.defaultValue)
        #expect(read[1].renamingIdentifier == title.renamingIdentifier)
        #expect(read[1].userInfo == title.userInfo)
        #expect(Set(read[1].validations.map(\.predicate)) == Set(title.validations.map(\.predicate)))
        #expect(read[2] == when)
    }

    @Test func compositeAttributesOfEqualElementsShareOneComposite() throws {
        let elements = [AttributeDescription(name: "x", type: .double), AttributeDescription(name: "y", type: .float)]
        let point = { (name: String) in
            var attribute = AttributeDescription(name: name, type: .composite)
            attribute.elements = elements
            return attribute
        }
        var outer = AttributeDescription(name: "area", type: .composite)
        outer.elements = [point("from"), AttributeDescription(name: "label", type: .string)]
        var place = EntityDescription(name: "Place")
        place.attributes = [outer, point("center")]
        let model = try ManagedObjectModel(entities: [place], versionIdentifiers: [""])
        #expect(try rewritten(model) == model)
        #expect(try model.sourceDocument().matches(of: try Regex("<composite ")).count == 2)
    }

    @Test func namesWhatXMLCantExpress() throws {
        let directory = try TemporaryDirectory()
        var cover = AttributeDescription(name: "cover", type: .transformable)
        cover.defaultValue = .archived(className: "App.Cover")
        var text = AttributeDescription(name: "text", type: .string)
        text.defaultValue = .string("\u{1}")
        text.validations = [ValidationRule(predicate: "SELF CONTAINS \"x\"")]
        var book = EntityDescription(name: "Book")
        book.attributes = [cover, text]
        let model = try ManagedObjectModel(entities: [book], versionIdentifiers: ["a", "b"])
        let path = directory.path.appending("Books.xcdatamodel")
        let notes = try model.writeSource(to: path)
        #expect(
            notes.map { [$0.entity, $0.property].compactMap(\.self).joined(separator: ".") }
                == ["Book.cover", "Book.text", "Book.text", ""])
        #expect(notes[0].message.contains("default a App.Cover"))
        #expect(try ModelBundle(reading: path).current.model.versionChecksum == model.versionChecksum)
        #expect(throws: ModelError.self) { try model.writeSource(to: path) }
        let bundle = directory.path.appending("Books.xcdatamodeld")
        _ = try model.writeSource(to: bundle)
        #expect(try ModelBundle(reading: bundle).current.name == "Books")
    }

    @Test func writesNothingIfTheHashesWouldDiffer() throws {
        let directory = try TemporaryDirectory()
        var serial = AttributeDescription(name: "serial", type: .integer64)
        serial.isReadOnly = true
        var book = EntityDescription(name: "Book")
        book.attributes = [serial]
        let model = try ManagedObjectModel(entities: [book])
        let path = directory.path.appending("Books.xcdatamodel")
        let error = try #require(throws: ModelError.self) { try model.writeSource(to: path) }
        #expect(error.code == .inexpressible)
        #expect(error.message.contains("Book.serial: XML can't express: readOnly"))
        var bad = EntityDescription(name: "B\u{2}d")
        bad.attributes = [AttributeDescription(name: "x", type: .string)]
        let other = try ManagedObjectModel(entities: [bad])
        #expect(throws: ModelError.self) { try other.writeSource(to: path) }
        #expect(throws: ModelError.self) { try other.writeSource(to: directory.path.appending("Books.momd")) }
        #expect(try Directory(directory.path).names().isEmpty)
    }

    @Test(.enabled(if: RealModels.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func rewritesEveryRealModel() throws {
        for path in RealModelTests.all("xcdatamodeld") + RealModelTests.all("momd") {
            for version in try ModelBundle(reading: path).versions {
                let written = try rewritten(version.model)
                #expect(written.entityVersionHashesByName == version.model.entityVersionHashesByName, "\(path)")
                if path.extension == "xcdatamodeld" { #expect(written == version.model, "\(path) \(version.name)") }
            }
        }
    }
}
