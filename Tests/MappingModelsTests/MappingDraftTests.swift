import ManagedObjectModels
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels

@Suite struct MappingDraftTests {
    private func attribute(
        _ name: String, _ type: AttributeType, _ change: (inout AttributeDescription) -> Void = { _ in }
    ) -> AttributeDescription {
        var attribute = AttributeDescription(name: name, type: type)
        attribute.isOptional = true
        change(&attribute)
        return attribute
    }

    private func model(_ entities: EntityDescription...) throws -> ManagedObjectModel {
        try ManagedObjectModel(entities: entities)
    }

    private func entity(_ name: String, _ attributes: [AttributeDescription]) -> EntityDescription {
        var entity = EntityDescription(name: name)
        entity.attributes = attributes
        return entity
    }

    /// Reads a draft's YAML as a file.
    private func read(_ yaml: String) throws -> MappingModel {
        let directory = try TemporaryDirectory()
        let path = directory.path.appending("A.mapping.yaml")
        let file = try FileDescriptor.open(
            path, .writeOnly, options: [.create], permissions: [.ownerReadWrite])
        _ = try file.closeAfter { try file.writeAll(yaml.utf8) }
        return try MappingModelFile(reading: path).mappingModel
    }

    @Test func writesEachPropertyWithItsOrigin() throws {
        let old = try model(
            entity("Note", [attribute("title", .string), attribute("rest", .string), attribute("stars", .integer16)]))
        let new = try model(
            entity(
                "Note",
                [
                    attribute("caption", .string) { $0.renamingIdentifier = "title" },
                    attribute("stars", .integer16) {
                        $0.isOptional = false
                        $0.defaultValue = .integer(3)
                    },
                    attribute("added", .uuid),
                ]),
            entity("Tag", [attribute("word", .string)]))
        var draft = MappingDraft(from: old, to: new)
        draft.nameVersions(from: "Notes", to: "Notes 2")
        #expect(draft.places.allSatisfy { !$0.isOpen })
        #expect(draft.yaml.contains("caption: $source.title\n"))
        #expect(draft.yaml.contains("stars: TERNARY($source.stars == nil, 3, $source.stars)\n"))
        #expect(draft.yaml.contains("# new: no value (write an expression to compute it)\n      added: ~\n"))
        #expect(draft.yaml.contains("# not read: rest (none needed if their values may be lost)\n"))
        let read = try read(draft.yaml)
        #expect(read == draft.mappingModel)
        #expect(read.fits(from: old, to: new))
        #expect(try draft.xcodeDocument().contains("destinationname\" type=\"string\">Tag<"))
    }

    @Test func marksWhatCantBeInferred() throws {
        var pages = RelationshipDescription(name: "pages", destinationEntityName: "Page")
        pages.maxCount = 0
        pages.isOptional = true
        var book = entity("Book", [attribute("price", .string)])
        book.relationships = [pages]
        let old = try model(book, entity("Page", []), entity("Draft", []))
        var page = pages
        page.name = "page"
        page.renamingIdentifier = "pages"
        page.maxCount = 1
        var newBook = entity("Book", [attribute("price", .integer64)])
        newBook.relationships = [page]
        var draftEntity = entity("Draft", [])
        draftEntity.isAbstract = true
        let new = try model(newBook, entity("Page", []), draftEntity)
        #expect(throws: MappingInferenceError.self) { try MappingModel.inferred(from: old, to: new) }
        let draft = MappingDraft(from: old, to: new)
        let open = draft.places.filter(\.isOpen).map { [$0.mapping, $0.property].compactMap(\.self) }
        #expect(Set(open) == [["BookToBook", "price"], ["BookToBook", "page"], ["Draft"]])
        let lines = draft.yaml.split(separator: "\n").map(String.init)
        let price = try #require(lines.firstIndex(of: "      price: ~"))
        #expect(lines[price - 1].hasPrefix("      # TO DO: Source and destination attribute types are incompatible"))
        let page2 = try #require(lines.firstIndex(of: "      page: ~"))
        #expect(lines[page2 - 1].contains("write { from: pages }"))
        #expect(try read(draft.yaml).fits(from: old, to: new))
    }

    @Test func namesMappingsApart() throws {
        let old = try model(entity("A", []), entity("AToB", []))
        let new = try model(
            {
                var entity = entity("BToC", [])
                entity.renamingIdentifier = "A"
                return entity
            }(),
            {
                var entity = entity("C", [])
                entity.renamingIdentifier = "AToB"
                return entity
            }())
        let draft = MappingDraft(from: old, to: new)
        #expect(draft.mappingModel.entityMappings.map(\.name) == ["AToBToC", "AToBToC 2"])
        #expect(try read(draft.yaml) == draft.mappingModel)
        #expect(throws: MappingModelError.self) { try draft.xcodeDocument() }
    }

    @Test func aCommentNeverBecomesContent() throws {
        let old = try model(entity("A", [attribute("x\n- evil: yes", .string)]))
        let new = try model(entity("A", [attribute("y", .string)]))
        let draft = MappingDraft(from: old, to: new)
        #expect(try read(draft.yaml) == draft.mappingModel)
        #expect(draft.yaml.contains("not read: x - evil: yes"))
    }
}
