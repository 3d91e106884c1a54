import LinuxSystem
import ManagedObjectModels
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels

/// The three forms of a mapping model, and conversions between them.
struct MappingModelFileTests {
    private func read(_ text: String) throws(MappingFault) -> MappingModel {
        try YAMLMappingReader.read(Array(text.utf8))
    }

    private static let split = """
        mapping: 1
        source: Zoo
        destination: Zoo 2
        before:
          - drop: Object
            where: kind == nil
          - sql: DELETE FROM ZLOG
        entities:
          - name: Humans
            from: Object
            to: Human
            where: kind == "human"
            attributes:
              name: $source.first + 1   # not a comment of the expression
              since: CAST(0.5, "NSDate")
              note: ~
            relationships:
              pets: { mapping: ObjectToAnimal, from: friends }
              parts: { from: pieces.parts }
              all: FUNCTION($manager, "destinationInstancesForEntityMappingNamed:sourceInstances:", "X", $source.a.@count)
          - from: Object
            to: Animal
            where: kind == "animal"
            policy: Zoo.AnimalPolicy
            only-listed: yes
            user-info: { author: me }
            attributes:
              legs: { value: "4", user-info: { why: 'it: is' } }
              name: automatic
          - to: Keeper
          - from: Ticket
        after:
          - sql: UPDATE ZHUMAN SET ZNAME = 'it''s'
        """

    @Test func readsYAML() throws {
        let model = try read(Self.split)
        #expect(model.entityMappings.map(\.name) == ["Humans", "ObjectToAnimal", "Keeper", "Ticket"])
        #expect(model.entityMappings.map(\.kind) == [.transform, .custom, .add, .remove])
        #expect(model.preparations.count == 2 && model.completions.count == 1)
        let humans = model.entityMappings[0]
        #expect(
            humans.filter
                == .comparison(.init(.keyPath(of: .evaluatedObject, "kind"), .equal, .constant(.string("human")))))
        #expect(!humans.mapsOnlyWhatIsListed && model.entityMappings[1].mapsOnlyWhatIsListed)
        #expect(
            humans.relationshipMappings.first { $0.name == "pets" }?.valueExpression
                == .destinationInstances(of: "ObjectToAnimal", "friends"))
        #expect(
            humans.attributeMappings.first { $0.name == "note" } == PropertyMapping(name: "note", valueExpression: nil))
        #expect(model.entityMappings[1].attributeMappings[0].userInfo == ["why": "it: is"])
    }

    @Test func roundTripsThroughYAML() throws {
        let model = try read(Self.split)
        #expect(try read(model.yaml) == model)
    }

    /// The writer writes YAML by hand; the reader must get back each text, at each place where a text may be.
    @Test(arguments: [
        "", " ", "~", "null", "Null", "no", "yes", "true", "1", "0x1", "1.0", "automatic", "<<", "=", "-", "- a", "---",
        "...", "--- a", "?", "? a", "a?", "?a", ":", "a:", ":a", "a: b", "a:b", "a :b", "a::b", "#", "#a", "a #b",
        "a#b",
        "&a", "*a", "!a", "%a", "@a", "`a", "|", ">", "a|b", "'", "''", "it's", "\"", "\"a\"", "\\", "a\\nb", "[", "]",
        "{", "}", ",", "a,b", "a, b", "a]b", "a}b", "a[b", "a{b", "(a, b)", "f(a], b", "f(a}", "f(a: b)", " a", "a ",
        "a  b", "\t", "a\tb", "a\n", "a\nb", "\na", "a\n\n b", "a\r\nb", "\u{0}", "a\u{1}b", "\u{1B}", "\u{7F}",
        "\u{85}", "a\u{85}b", "\u{9F}", "\u{A0}", "\u{2028}", "a\u{2029}b", "\u{FEFF}", "a\u{FEFF}b", "\u{FFFE}",
        "\u{FFFF}", "\u{200B}", "é", "e\u{301}", "日本", "😀", "\u{10FFFF}", "a\u{85}\t'\"\\",
    ])
    func roundTripsAnyText(_ text: String) throws {
        var mapping = EntityMapping(
            name: text, kind: .transform, sourceEntityName: text, destinationEntityName: text)
        mapping.userInfo = [text: text, text + "x": "x" + text]
        mapping.entityMigrationPolicyClassName = text
        mapping.kind = .custom
        var attribute = PropertyMapping(
            name: text, valueExpression: .constant(.string(text)))
        attribute.userInfo = [text: text]
        mapping.attributeMappings = [attribute, PropertyMapping(name: text + "x", valueExpression: nil)]
        mapping.relationshipMappings = [
            PropertyMapping(name: text, valueExpression: .destinationInstances(of: text, text))
        ]
        // Other key paths are written as expressions, which have their own syntax.
        if text.split(separator: ".").last.map(String.init) == text {
            mapping.relationshipMappings.append(
                PropertyMapping(
                    name: text + "x", valueExpression: .destinationInstances(ofRelationship: text, text)))
        }
        mapping.attributeMappings.sort { $0.name.precedes($1.name) }
        mapping.relationshipMappings.sort { $0.name.precedes($1.name) }
        var model = MappingModel(entityMappings: [mapping])
        model.sourceVersionName = text
        model.destinationVersionName = "x" + text
        model.preparations = [.sql(text), .drop(entity: text, where: nil)]
        let reread = try read(model.yaml)
        #expect(reread == model, "\(model.yaml)")
        #expect(reread.yaml.unicodeScalars.elementsEqual(model.yaml.unicodeScalars))
    }

    @Test(arguments: [
        ("mapping: 2\nentities: []", 1), ("mapping: 1\nentities: []\nfoo: 1", 3), ("entities: []", nil),
        ("mapping: 1\nentities:\n  - from: A\n    form: B", 4), ("mapping: 1\nentities:\n  - name: A", 3),
        ("mapping: 1\nentities:\n  - from: A\n    to: B\n    where: a ==", 5), ("mapping: 1\nentities: {}", 2),
        ("mapping: 1\nentities:\n  - {from: A, to: B, attributes: {x: 'a +'}}", 3), ("mapping: 1\n\tentities: []", 2),
        ("mapping: 1\nmapping: 1\nentities: []", 1), ("mapping: 1\nbefore:\n  - drop: A\n    sql: B\nentities: []", 3),
        ("a: &x [1]\nb: *x", 1), ("[]", 1), ("", nil),
    ])
    func reportsTheLineOfAnError(text: String, line: Int?) {
        do {
            _ = try read(text)
            Issue.record("the mapping model was accepted")
        } catch { if let line { #expect(error.line == line, "\(error)") } }
    }

    @Test(arguments: [
        "\u{FEFF}mapping: 1\nentities:\n  - from: A\n    to: B\n",
        "mapping: 1\r\nentities:\r\n  - from: A\r\n    to: B\r\n",
        "---\nmapping: '1'\nentities: [{from: A, to: B}]\n...\n",
        "%YAML 1.1\n---\nmapping: !!int 01\nentities:\n- &a {from: A, to: B}\n",
        "{mapping: +1, entities: [{? from : A, to: !!str B}]}",
    ])
    func readsOtherSpellingsOfAMappingModel(text: String) throws {
        #expect(try read(text) == read("mapping: 1\nentities: [{from: A, to: B}]"))
    }

    @Test func anAliasStandsForACopy() throws {
        let model = try read(
            "mapping: 1\nentities:\n- {from: A, to: B, attributes: &x {a: b}}\n- {from: C, to: D, attributes: *x}\n")
        #expect(model.entityMappings[0].attributeMappings == model.entityMappings[1].attributeMappings)
        #expect(model.entityMappings[1].attributeMappings.map(\.name) == ["a"])
    }

    @Test(arguments: [
        ("mapping: 0x1\nentities: []", "“mapping” is not a number", 1),
        ("mapping: 1\nsource: ~\nentities: []", "“source” is not text", 2),
        ("mapping: 1\nentities:\n  a: b", "“entities” is not a list", 2),
        ("mapping: 1\nentities:\n- from: A\n  only-listed:\n    maybe", "“only-listed” is not yes or no", 4),
        ("- a", "“the file” is not a mapping of names to values", 1),
        ("mapping: 1\nentities: []\n<<: {source: A}", "the file has no key “<<”", 3),
        ("mapping: 1\nentities:\n- {from: A, attributes: {a: b, 'a': c}}", "a appears twice", 3),
        ("mapping: 1\n---\nmapping: 1", "this is not YAML: but found another document", 2),
        ("mapping: 1\nsource: a\u{1}", "this is not YAML: control characters are not allowed", 2),
        ("mapping: 1\nentities:\n- {[from]: A}", "the file contains a key that is not a plain word", 3),
    ])
    func explainsAnError(text: String, message: String, line: Int) {
        let error = #expect(throws: MappingFault.self) { try read(text) }
        #expect(error?.message == message || error?.message.hasPrefix(message) == true)
        #expect(error?.line == line)
    }

    @Test func roundTripsThroughXcodesForm() throws {
        var model = try read(Self.split)
        model.preparations = []
        model.completions = []
        model.entityMappings.removeFirst()
        model.entityMappings[1].mapsOnlyWhatIsListed = true
        model.entityMappings[0].filter = try MappingPredicate(format: "kind == \"<&>\" AND n < 3")
        let reread = try XcodeMappingReader.read(Array(model.xcodeDocument().utf8))
        #expect(reread == model)
    }

    @Test func refusesStepsInXcodesForm() throws {
        let model = try read(Self.split)
        #expect(throws: MappingModelError.self) { try model.xcodeDocument() }
    }

    /// Silently dropped hashes would make the mapping model fit unintended models.
    @Test func refusesHashesInXcodesForm() throws {
        let hash = String(repeating: "ab", count: 32)
        let model = try read("mapping: 1\nentities:\n  - {from: A, to: A, only-listed: yes, hashes: {from: \(hash)}}")
        let error = #expect(throws: MappingModelError.self) { try model.xcodeDocument() }
        #expect(error?.code == .inexpressible)
        #expect(try XcodeMappingReader.read(Array(model.withoutHashes.xcodeDocument().utf8)).entityMappings.count == 1)
    }

    // MARK: Damaged files

    @Test(arguments: [
        "<database>", "<x/>", "<database><object id=\"1\" type=\"X\"/></database>",
        "<database><object id=\"1\"/></database>",
        "<database><object id=\"1\" type=\"XDDEVMAPPINGMODEL\"><relationship name=\"entitymappings\" idrefs=\"z9\"/></object></database>",
        "<database><object id=\"1\" type=\"XDDEVMAPPINGMODEL\"/><object id=\"1\" type=\"XDDEVMAPPINGMODEL\"/></database>",
        """
        <database><object id="1" type="XDDEVMAPPINGMODEL"/><object id="2" type="XDDEVENTITYMAPPING">
        <relationship name="mappingmodel" idrefs="1"/></object></database>
        """,
        """
        <database><object id="1" type="XDDEVMAPPINGMODEL"/><object id="2" type="XDDEVENTITYMAPPING">
        <attribute name="sourcename">A</attribute><relationship name="mappingmodel" idrefs="1"/></object>
        <object id="3" type="XDDEVATTRIBUTEMAPPING"><attribute name="name">x</attribute>
        <attribute name="valueexpressiondata">bm90aGluZw==</attribute>
        <relationship name="entitymapping" idrefs="2"/></object></database>
        """,
        "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><database>&b;</database>",
        "<database><object id='1' type='XDDEVMAPPINGMODEL'>stray</object></database>",
        "<database><object id='1' type='XDDEVMAPPINGMODEL'><attribute name='a'><b/></attribute></object></database>",
        "<database><object id='1' type='XDDEVMAPPINGMODEL'><attribute name='a'/><attribute name='a'/></object></database>",
    ])
    func refusesDamagedXML(text: String) {
        #expect(throws: MappingFault.self) { () throws in _ = try XcodeMappingReader.read(Array(text.utf8)) }
    }

    /// An archive whose objects refer to themselves, or twice to the next object, must end in an error.
    @Test func boundsRecursiveArchives() {
        let object = { (fields: String) in
            "<dict>\(fields)<key>$class</key><dict><key>CF$UID</key><integer>1</integer></dict></dict>"
        }
        let uid = { (number: Int) in "<dict><key>CF$UID</key><integer>\(number)</integer></dict>" }
        var objects = [
            "<string>$null</string>", "<dict><key>$classname</key><string>NSTernaryExpression</string></dict>",
        ]
        for number in 2..<40 {
            let next = uid(number + 1)
            objects.append(
                object(
                    "<key>NSPredicate</key>\(uid(40))<key>NSTrueExpression</key>\(next)<key>NSFalseExpression</key>\(next)"
                ))
        }
        objects.append("<dict><key>$class</key>\(uid(41))</dict>")
        objects.append("<dict><key>$classname</key><string>NSTruePredicate</string></dict>")
        let plist =
            "<plist><dict><key>$archiver</key><string>NSKeyedArchiver</string><key>$objects</key><array>\(objects.joined())"
            + "</array><key>$top</key><dict><key>root</key>\(uid(2))</dict></dict></plist>"
        #expect(throws: MappingFault.self) { () throws in _ = try ArchivedExpressionReader.expression(Array(plist.utf8))
        }
    }
}

/// The mapping models of real apps.
@Suite(.enabled(if: SampleStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealMappingModelTests {
    private static let all: [String] = [
        "alemar11__CoreDataPlus/Tests/Resources/SampleModel/MappingModels/V2toV3.xcmappingmodel",
        "alemar11__CoreDataPlus/Tests/Resources/SampleModel/Fixtures/V2toV3.cdm",
        "wibosco__CoreDataMigration-Example/CoreDataMigration-Example/CoreData/Migration/Mappings/Migration1to2.xcmappingmodel",
        "wibosco__CoreDataMigration-Example/CoreDataMigration-Example/CoreData/Migration/Mappings/Migration2to3.xcmappingmodel",
        "wibosco__CoreDataMigrationRevised-Example/CoreDataMigration-Example/CoreData/Migration/Mappings/"
            + "Migration2to3ModelMapping.xcmappingmodel",
        "LanarsInc__core-data-migration-example/v3/CoreDataMigrationExample/MessageToPrivateAndPublic.xcmappingmodel",
    ]

    private func file(_ name: String) throws -> MappingModelFile {
        try MappingModelFile(reading: #require(SampleStores.directory).appending(FilePath(name).components))
    }

    @Test(arguments: all)
    func readsAndConverts(name: String) throws {
        let file = try file(name)
        #expect(!file.mappingModel.entityMappings.isEmpty)
        #expect(try YAMLMappingReader.read(Array(file.mappingModel.yaml.utf8)).equalsIgnoringKinds(file.mappingModel))
        guard file.form == .xcode else { return }
        #expect(try XcodeMappingReader.read(Array(file.mappingModel.xcodeDocument().utf8)) == file.mappingModel)
    }

    /// Resolving a mapping model must yield what Xcode's compiler yields.
    @Test func resolvesLikeXcodesCompiler() throws {
        let xcode = try file(Self.all[0])
        let compiled = try file(Self.all[1])
        let path = try #require(SampleStores.directory).appending(
            FilePath("alemar11__CoreDataPlus/Tests/Resources/SampleModel/SampleModel.xcdatamodeld").components)
        let versions = try ModelBundle(reading: path).versions
        #expect(versions.map(\.name) == ["SampleModel", "SampleModel2", "SampleModel3"])
        let resolved = try xcode.mappingModel.resolved(from: versions[1].model, to: versions[2].model)
        #expect(resolved.entityMappings.map(\.name) == compiled.mappingModel.entityMappings.map(\.name))
        for (ours, xcodes) in zip(resolved.entityMappings, compiled.mappingModel.entityMappings) {
            #expect(ours.attributeMappings == xcodes.attributeMappings, "\(ours.name)")
            #expect(ours.relationshipMappings == xcodes.relationshipMappings, "\(ours.name)")
            #expect(ours.sourceEntityVersionHash == xcodes.sourceEntityVersionHash)
            #expect(ours.destinationEntityVersionHash == xcodes.destinationEntityVersionHash)
            #expect(ours.entityMigrationPolicyClassName == xcodes.entityMigrationPolicyClassName)
        }
        #expect(xcode.fits(from: ("SampleModel2", versions[1].model), to: ("SampleModel3", versions[2].model)))
        #expect(compiled.fits(from: (nil, versions[1].model), to: (nil, versions[2].model)))
        #expect(!compiled.fits(from: (nil, versions[0].model), to: (nil, versions[2].model)))
        #expect(!xcode.fits(from: ("SampleModel", versions[0].model), to: ("SampleModel3", versions[2].model)))
    }
}

extension MappingModel {
    /// Compares without the kinds of entity mappings, which only a compiled mapping model stores.
    fileprivate func equalsIgnoringKinds(_ other: MappingModel) -> Bool {
        var copy = self
        for index in copy.entityMappings.indices where index < other.entityMappings.count {
            copy.entityMappings[index].kind = other.entityMappings[index].kind
        }
        return copy == other
    }
}
