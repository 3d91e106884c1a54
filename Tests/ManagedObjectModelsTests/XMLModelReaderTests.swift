import SystemPackage
import Testing

@testable import ManagedObjectModels

@Suite struct XMLModelReaderTests {
    static let model = """
        <?xml version="1.0" encoding="UTF-8" standalone="yes"?>
        <model type="com.apple.IDECoreDataModeler.DataModel" documentVersion="1.0" userDefinedModelVersionIdentifier="3">
            <entity name="Note" representedClassName="MyNote" syncable="YES" elementID="Memo" versionHashModifier="m">
                <attribute name="body" attributeType="String" defaultValueString="" minValueString="3" \
        maxValueString="9" regularExpressionString="^a" elementID="text"/>
                <attribute name="count" optional="YES" attributeType="Integer 32" defaultValueString="NO" \
        usesScalarValueType="YES" minValueString="1"/>
                <attribute name="created" attributeType="Date" defaultDateTimeInterval="86400" minDateTimeInterval="0"/>
                <attribute name="flag" attributeType="Boolean" defaultValueString="YES"/>
                <attribute name="image" optional="YES" attributeType="Binary" allowsExternalBinaryDataStorage="YES" \
        preserveAfterDeletion="YES"/>
                <attribute name="price" attributeType="Decimal" defaultValueString="0.10"/>
                <attribute name="scratch" optional="YES" transient="YES" attributeType="Transformable" \
        valueTransformerName="T" customClassName="Scratch"/>
                <attribute name="total" optional="YES" attributeType="Integer 64" derived="YES" \
        derivationExpression="tags.@count"/>
                <attribute name="place" attributeType="Composite" compositeName="Place"/>
                <relationship name="folder" maxCount="1" minCount="1" deletionRule="Deny" destinationEntity="Folder" \
        inverseName="notes" inverseEntity="Folder"/>
                <relationship name="tags" optional="YES" toMany="YES" ordered="YES" maxCount="7" \
        destinationEntity="Note"/>
                <fetchedProperty name="similar" optional="YES">
                    <fetchRequest name="fetchedPropertyFetchRequest" entity="Note" predicateString="body != nil"/>
                </fetchedProperty>
                <fetchIndex name="byBody">
                    <fetchIndexElement property="body" type="Binary" order="descending"/>
                    <fetchIndexElement property="price" type="RTree" order="ascending"/>
                </fetchIndex>
                <uniquenessConstraints>
                    <uniquenessConstraint><constraint value="body"/><constraint value="created"/></uniquenessConstraint>
                </uniquenessConstraints>
                <userInfo><entry key="a" value="b"/></userInfo>
            </entity>
            <entity name="Folder" isAbstract="YES">
                <relationship name="notes" optional="YES" toMany="YES" deletionRule="Cascade" \
        destinationEntity="Note" inverseName="folder" inverseEntity="Note"/>
                <compoundIndexes><compoundIndex><index value="notes"/></compoundIndex></compoundIndexes>
            </entity>
            <entity name="SubFolder" parentEntity="Folder"/>
            <composite name="Place">
                <attribute name="city" optional="YES" attributeType="String"/>
                <attribute name="zip" attributeType="Integer 16"/>
            </composite>
            <fetchRequest name="All" entity="Note" predicateString="flag == YES" fetchLimit="5"/>
            <configuration name="Cloud"><memberEntity name="Note"/></configuration>
            <elements><element name="Note" positionX="0" positionY="0" width="0" height="0"/></elements>
        </model>
        """

    static func read(_ text: String) throws -> ModelVersion {
        try XMLModelReader.read(Array(text.utf8), path: "/M.xcdatamodel/contents", name: "M")
    }

    @Test func readsAllParts() throws {
        let version = try Self.read(Self.model)
        let model = version.model
        #expect(model.versionIdentifiers == ["3"])
        #expect(model.configurations == ["Cloud": ["Note"]])
        #expect(model.fetchRequestTemplates.map(\.predicate) == ["flag == YES"])
        #expect(model.fetchRequestTemplates.map(\.fetchLimit) == [5])
        #expect(model.entities.map(\.name) == ["Folder", "Note", "SubFolder"])
        let folder = try #require(model.entity(named: "Folder"))
        #expect(folder.isAbstract)
        #expect(folder.compoundIndexes == [["notes"]])
        #expect(model.subentities(of: folder).map(\.name) == ["SubFolder"])
        let sub = try #require(model.entity(named: "SubFolder"))
        #expect(model.rootEntity(of: sub).name == "Folder")
        #expect(model.properties(of: sub).map(\.name) == ["notes"])
        let note = try #require(model.entity(named: "Note"))
        #expect(note.managedObjectClassName == "MyNote")
        #expect(note.renamingIdentifier == "Memo")
        #expect(note.versionHashModifier == "m")
        #expect(note.userInfo == ["a": "b"])
        #expect(note.uniquenessConstraints == [["body", "created"]])
        #expect(
            note.indexes == [
                FetchIndexDescription(
                    name: "byBody",
                    elements: [.init(property: "body", isAscending: false), .init(property: "price", kind: .rTree)])
            ])
        #expect(note.fetchedProperties.map(\.fetchRequest.predicate) == ["body != nil"])
        #expect(version.lines["Note"] == 3)
        #expect(version.lines["Note.body"] == 4)
        #expect(version.line(entity: "Note", property: "absent") == 3)
    }

    @Test func readsAttributes() throws {
        let note = try #require(try Self.read(Self.model).model.entity(named: "Note"))
        func attribute(_ name: String) throws -> AttributeDescription {
            try #require(note.attributes.first { $0.name == name })
        }
        let body = try attribute("body")
        #expect(body.renamingIdentifier == "text")
        #expect(body.defaultValue == .string(""))
        #expect(body.validations.map(\.predicate) == ["length >= 3", "length <= 9", "SELF MATCHES \"^a\""])
        #expect(body.validations.map(\.errorCode) == [1670, 1660, 1680])
        let count = try attribute("count")
        #expect(count.isOptional && count.usesScalarValueType == true)
        #expect(count.defaultValue == .integer(0))
        #expect(count.validations == [ValidationRule(predicate: "SELF >= 1", errorCode: 1620)])
        #expect(try attribute("created").defaultValue == .date(86400))
        #expect(try attribute("flag").defaultValue == .boolean(true))
        let image = try attribute("image")
        #expect(image.allowsExternalBinaryDataStorage && image.preservesValueInHistoryOnDeletion)
        #expect(try attribute("price").defaultValue == .decimal("0.10"))
        let scratch = try attribute("scratch")
        #expect(scratch.isTransient && scratch.valueTransformerName == "T" && scratch.valueClassName == "Scratch")
        let total = try attribute("total")
        #expect(total.derivation == .init(expression: "tags.@count") && total.isReadOnly)
        #expect(try attribute("place").elements.map(\.name) == ["city", "zip"])
    }

    @Test func readsRelationships() throws {
        let model = try Self.read(Self.model).model
        let note = try #require(model.entity(named: "Note"))
        let folder = note.relationships[0]
        #expect(!folder.isToMany && folder.minCount == 1 && folder.maxCount == 1 && folder.deleteRule == .deny)
        #expect(model.inverse(of: folder)?.name == "notes")
        let tags = note.relationships[1]
        #expect(tags.isToMany && tags.isOrdered && tags.maxCount == 7 && tags.inverseName == nil)
        #expect(model.inverse(of: tags) == nil)
    }

    @Test(arguments: [
        ("<entity name='A'>\n<attribute name='x' attributeType='Strng'/></entity>", 2, "A.x", "Strng"),
        ("<entity name='A'>\n<attribute attributeType='String'/></entity>", 2, "A", "name"),
        ("<entity/>", 1, "entity", "name"),
        ("<entity name='A'>\n<attribute name='x' attributeType='Date' optional='maybe'/></entity>", 2, "x", "maybe"),
        ("<entity name='A'>\n<relationship name='r'/></entity>", 2, "A.r", "destination"),
        ("<entity name='A'>\n\n<relationship name='r' destinationEntity='B'/></entity>", 3, "A.r", "“B”"),
        (
            "<entity name='A'><relationship name='r' destinationEntity='A' inverseName='q'/></entity>", 1, "A.r",
            "inverse"
        ),
        ("<entity name='A'/>\n<entity name='A'/>", 1, "A", "two entities"),
        ("<entity name='A' parentEntity='B'/>", 1, "A", "parent"),
        ("<entity name='A' parentEntity='B'/><entity name='B' parentEntity='A'/>", 1, "A", "inherits from itself"),
        (
            "<entity name='A'><attribute name='x'/></entity>\n<entity name='B' parentEntity='A'>"
                + "<attribute name='x'/></entity>", 2, "B.x", "two properties"
        ),
        (
            "<entity name='A'><attribute name='x' attributeType='Composite' compositeName='C'/></entity>"
                + "<composite name='C'><attribute name='y' attributeType='Composite' compositeName='C'/></composite>",
            1,
            "A.y", "contains itself"
        ),
        ("<configuration name='C'><memberEntity name='X'/></configuration>", nil, "X", "configuration"),
    ])
    func refusesInvalidModels(_ content: String, _ line: Int?, _ element: String, _ word: String) throws {
        let error = #expect(throws: ModelError.self) { try Self.read("<model>\(content)</model>") }
        #expect(error?.code == .invalid)
        #expect(error?.line == line)
        #expect(error?.element == element)
        #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
        #expect(error?.remedy.isEmpty == false)
        #expect(error?.description.hasPrefix("/M.xcdatamodel/contents") == true)
    }

    @Test func notesAnIgnoredRenamingIdentifier() throws {
        let version = try Self.read(
            "<model>\n<entity name='A'>\n<attribute name='x' renamingIdentifier='y' attributeType='Date'/>\n</entity></model>"
        )
        #expect(version.remarks.map(\.property) == ["x"])
        #expect(version.remarks.map(\.line) == [3])
        #expect(version.model.entities[0].attributes[0].renamingIdentifier == "x")
    }

    @Test func refusesAnEndlessHierarchy() {
        let entities = (0..<5000).map { "<entity name='E\($0)' parentEntity='E\(($0 + 1) % 5000)'/>" }.joined()
        let error = #expect(throws: ModelError.self) { try Self.read("<model>\(entities)</model>") }
        #expect(error?.code == .invalid)
    }

    /// Xcode accepts any text as a default, and an app has none where it isn't a value of the attribute's type.
    @Test(arguments: [
        ("Integer 16", "70000"), ("Integer 32", "many"), ("Boolean", "maybe"), ("UUID", "none"), ("Double", "inf"),
        ("Decimal", "1,5"),
    ])
    func ignoresADefaultOfAnotherType(_ type: String, _ text: String) throws {
        let version = try Self.read(
            "<model>\n<entity name='A'>\n<attribute name='x' attributeType='\(type)' defaultValueString='\(text)'/>\n</entity></model>"
        )
        #expect(version.model.entities[0].attributes[0].defaultValue == nil)
        #expect(version.remarks.map(\.line) == [3] && version.remarks.map(\.property) == ["x"])
        #expect(version.remarks.first?.message.contains("“\(text)” is not a value of type \(type)") == true)
    }

    @Test(arguments: [
        ("Boolean", "0.0", AttributeValue.boolean(false)), ("Boolean", "1", .boolean(true)),
        ("Boolean", "NO", .boolean(false)),
        ("Boolean", "true", .boolean(true)), ("Integer 16", "5.0", .integer(5)), ("Integer 64", "YES", .integer(1)),
        ("Float", "NO", .real(0)), ("Decimal", "YES", .decimal("1")),
    ])
    func readsANumberAsADefaultOfItsType(_ type: String, _ text: String, _ value: AttributeValue) throws {
        let version = try Self.read(
            "<model><entity name='A'><attribute name='x' attributeType='\(type)' defaultValueString='\(text)'/></entity></model>"
        )
        #expect(version.model.entities[0].attributes[0].defaultValue == value && version.remarks.isEmpty)
    }

    /// A model that was built in code may have any default.
    @Test(arguments: [
        (AttributeType.uuid, AttributeValue.string("none")), (.integer16, .integer(70_000)), (.integer32, .string("x")),
        (.date, .string("x")), (.binaryData, .string("x")),
    ])
    func aCompiledModelHasNoDefaultOfAnotherType(_ type: AttributeType, _ value: AttributeValue) throws {
        var attribute = AttributeDescription(name: "x", type: type)
        attribute.defaultValue = value
        var entity = EntityDescription(name: "A")
        entity.attributes = [attribute]
        let content = try #require(ModelCache.content(of: ManagedObjectModel(entities: [entity])))
        #expect(try ModelCache.model(content, of: "/S.sqlite").entities[0].attributes[0].defaultValue == nil)
    }
}
