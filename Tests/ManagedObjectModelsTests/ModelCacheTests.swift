import SystemPackage
import Testing

@testable import ManagedObjectModels
@testable import PropertyLists

/// The model in a store's `Z_MODELCACHE` is the whole model.
struct ModelCacheTests {
    private func cached(_ model: ManagedObjectModel) throws -> ManagedObjectModel {
        try ModelCache.model(try #require(ModelCache.content(of: model)), of: "Notes.sqlite")
    }

    @Test func keepsEverythingThatXMLExpresses() throws {
        let model = try XMLModelReaderTests.read(XMLModelReaderTests.model).model
        let other = try XMLModelReaderTests.read(
            """
            <model><entity name="Doc">
            <attribute name="title" attributeType="String" minValueString="2" maxValueString="20"
                regularExpressionString="[a-z&quot;\\\\]+"/>
            <attribute name="n" attributeType="Integer 16" minValueString="-3" maxValueString="9"/>
            <attribute name="when" attributeType="Date" minDateTimeInterval="-5" maxDateTimeInterval="7.5"/>
            <attribute name="price" attributeType="Decimal" minValueString="0.5" defaultValueString="1e3"/>
            <fetchedProperty name="alike" elementID="same"><fetchRequest name="r" entity="Doc" fetchLimit="4"
                fetchBatchSize="2" predicateString="title == $FETCH_SOURCE.title"/><userInfo><entry key="k" value="v"/></userInfo>
            </fetchedProperty>
            <fetchIndex name="some" partialIndexPredicate="n &gt; 3"><fetchIndexElement property="n" order="descending"/>
            </fetchIndex></entity><entity name="Sub" parentEntity="Doc"/>
            <fetchRequest name="One" entity="Doc" fetchLimit="9" predicateString="n == 1 AND title BEGINSWITH[cd] $PREFIX"/>
            <fetchRequest name="All" entity="Doc"/>
            <configuration name="Part"><memberEntity name="Doc"/></configuration></model>
            """
        ).model
        for model in [model, other] {
            let found = try cached(model)
            #expect(found.comparable == model.comparable)
            #expect(found.fetchRequestTemplates == model.fetchRequestTemplates.sortedByName(\.name))
            #expect(found.configurations == model.configurations)
            #expect(found.versionIdentifiers == model.versionIdentifiers)
        }
    }

    private static let predicates = [
        "TRUEPREDICATE", "FALSEPREDICATE", "length >= 3", "SELF <= 9", "SELF MATCHES \"a\\\"b\\\\\"", "name == nil",
        "name != \"x\"", "n < 1", "n > 2.5",
        "name LIKE[c] \"x\"", "name BEGINSWITH[cd] \"x\"", "name ENDSWITH[d] \"x\"",
        "n IN {1, 2, \"three\"}", "SELF CONTAINS \"x\"", "n BETWEEN {1, 3}", "ANY tags.name == \"x\"", "ALL tags.n > 1",
        "NOT n == 1", "(a == 1 OR b == 2) AND NOT (c == 3 AND d == 4)", "owner.name == $FETCH_SOURCE.name",
        "tags.@count > 0", "(a + b) * c == 3", "a + b * c == 3", "a - (b - c) == 3", "a / (b * c) == 3",
        "SELF >= CAST(-5, \"NSDate\")", "price == CAST(\"-0.10\", \"NSDecimalNumber\")",
        "id == CAST(\"0F8FAD5B-D9CB-469F-A165-70867728950E\", \"NSUUID\")", "bytes == CAST(\"00ff\", \"NSData\")",
        "SUBQUERY(tags, $t, $t.n > 3 AND $t.name != nil).@count > 0", "TERNARY(n > 3, \"many\", \"few\") == \"many\"",
        "lowercase:(name) == \"x\"", "FUNCTION(owner, \"named:\", \"x\") == 1", "max:(tags.n) > 3", "SELF.n > 3",
    ]

    @Test(arguments: predicates)
    func keepsAPredicate(_ text: String) throws {
        let format = text == "SELF.n > 3" ? "n > 3" : text
        var title = AttributeDescription(name: "title", type: .string)
        title.validations = [
            ValidationRule(predicate: text, errorCode: 1680), ValidationRule(predicate: text, message: "Too short."),
            ValidationRule(predicate: text),
        ]
        var doc = EntityDescription(name: "Doc")
        doc.attributes = [title]
        doc.indexes = [.init(name: "i", elements: [.init(property: "title")], partialIndexPredicate: text)]
        let model = try ManagedObjectModel(
            entities: [doc], fetchRequestTemplates: [.init(name: "All", entityName: "Doc", predicate: text)])
        let found = try cached(model)
        let rules = found.entities[0].attributes[0].validations
        #expect(rules.map(\.predicate) == [format, format, format])
        #expect(rules.map(\.errorCode) == [1680, nil, nil])
        #expect(rules.map(\.message) == [nil, "Too short.", nil])
        #expect(found.entities[0].indexes[0].partialIndexPredicate == format)
        #expect(found.fetchRequestTemplates[0].predicate == format)
        // What was read is kept as it is.
        #expect(try cached(found) == found)
    }

    @Test func archivesTheClassesOfCoreData() throws {
        var title = AttributeDescription(name: "title", type: .string)
        title.validations = [ValidationRule(predicate: "SELF CONTAINS[c] \"x\" AND length >= 3", errorCode: 1670)]
        var doc = EntityDescription(name: "Doc")
        doc.attributes = [title]
        let model = try ManagedObjectModel(entities: [doc])
        let list = try PropertyListValue(binary: ArchivedModelWriter.archive(model))
        let objects = try #require(list.dictionary?["$objects"]?.array).compactMap(\.dictionary)
        // As in the stores of an app whose model has such rules.
        let contains = try #require(objects.first { $0["NSOperatorType"] == .integer(99) })
        #expect(Set(contains.keys) == ["NSFlags", "NSModifier", "NSOperatorType", "$class"])
        let atLeast = try #require(objects.first { $0["NSOperatorType"] == .integer(3) })
        #expect(atLeast["NSVariant"] == .integer(3) && atLeast["NSOptions"] == .integer(0))
        #expect(objects.contains { $0["_P"] == .integer(0xC1) })
        let classes = objects.compactMap { $0["$classes"]?.array?.compactMap(\.string) }
        #expect(classes.contains(["NSInPredicateOperator", "NSPredicateOperator", "NSObject"]))
        #expect(classes.contains(["NSComparisonPredicate", "NSPredicate", "NSObject"]))
    }

    @Test(arguments: [("1e3", "1000"), ("-2.50e1", "-25.0"), ("+7", "7"), ("12.5e-3", "0.0125")])
    func keepsADecimalDefaultWithAnExponent(_ written: String, _ read: String) throws {
        var price = AttributeDescription(name: "price", type: .decimal)
        price.defaultValue = .decimal(written)
        var doc = EntityDescription(name: "Doc")
        doc.attributes = [price]
        let found = try cached(ManagedObjectModel(entities: [doc])).entities[0]
        #expect(found.attributes[0].defaultValue == .decimal(read))
    }

    /// Without its condition, an index or a request would be another one.
    @Test func namesWhatDependsOnAnUnreadablePredicate() throws {
        let version = try XMLModelReaderTests.read(
            """
            <model><entity name="Doc"><attribute name="n" attributeType="Integer 16" minValueString="x y"/>
            <fetchedProperty name="p"><fetchRequest name="r" entity="Doc" predicateString="n == %@"/></fetchedProperty>
            <fetchIndex name="i" partialIndexPredicate="n &gt;"><fetchIndexElement property="n"/></fetchIndex></entity>
            <fetchRequest name="All" entity="Doc" predicateString="n"/><fetchRequest name="Rest" entity="Doc"/></model>
            """)
        #expect(version.remarks.filter { $0.message.contains("model caches lack it") }.count == 4)
        #expect(version.remarks.first { $0.property == "p" }?.line == 2)
        let found = try cached(version.model)
        #expect(found.entities[0].indexes.isEmpty && found.entities[0].fetchedProperties.isEmpty)
        #expect(found.entities[0].attributes[0].validations.isEmpty)
        #expect(found.fetchRequestTemplates.map(\.name) == ["Rest"])
    }
}

extension ManagedObjectModel {
    /// The entities with their properties by name, without what only the XML has, and with decimals as numbers.
    fileprivate var comparable: [EntityDescription] {
        entities.map { entity in
            var entity = entity
            entity.attributes = entity.attributes.map { attribute in
                var attribute = attribute
                attribute.usesScalarValueType = nil
                if case .decimal(let digits)? = attribute.defaultValue, let number = Double(digits) {
                    attribute.defaultValue = .real(number)
                }
                return attribute
            }.sortedByName(\.name)
            entity.relationships = entity.relationships.sortedByName(\.name)
            entity.fetchedProperties = entity.fetchedProperties.sortedByName(\.name)
            return entity
        }
    }
}
