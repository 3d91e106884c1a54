import Testing

@testable import MappingModels

/// A pair of models for each rule, accepted and refused.
@Suite struct MappingInferenceTests {
    private static func mappings(_ old: String, _ new: String) throws -> MappingModel {
        try .inferred(from: model(old), to: model(new))
    }

    private static func reasons(_ old: String, _ new: String) throws -> [MigrationFinding] {
        let old = try model(old)
        let new = try model(new)
        do {
            _ = try MappingModel.inferred(from: old, to: new)
            return []
        } catch let error as MappingInferenceError {
            return error.reasons
        }
    }

    private static func attribute(_ type: String, _ more: String = "") -> String {
        entity("<attribute name='x' attributeType='\(type)' \(more)/>")
    }

    @Test func entitiesArePairedByIdentifier() throws {
        let mapping = try Self.mappings(
            "<entity name='Same'/><entity name='Old'/><entity name='Gone'/><entity name='Wider'/>",
            "<entity name='Same'/><entity name='New' elementID='Old'/><entity name='Fresh'/>"
                + "<entity name='Wider'><attribute name='x' optional='YES' attributeType='Date'/></entity>")
        #expect(
            mapping.entityMappings.map(\.name) == [
                "IEM_Add_Fresh", "IEM_Transform_New", "IEM_Copy_Same", "IEM_Transform_Wider", "IEM_Remove_Gone",
            ])
        #expect(mapping.entityMappings.map(\.kind) == [.add, .transform, .copy, .transform, .remove])
        #expect(mapping.entityMappings.map(\.sourceEntityName) == [nil, "Old", "Same", "Wider", "Gone"])
        #expect(mapping.entityMappings.map(\.destinationEntityName) == ["Fresh", "New", "Same", "Wider", nil])
        #expect(
            mapping.entityMappings[2].sourceEntityVersionHash == mapping.entityMappings[2].destinationEntityVersionHash)
        #expect(mapping.entityMappings[0].sourceEntityVersionHash == nil)
    }

    /// Two inherited properties share one identifier, and the entity that combines them is in one model only.
    @Test(arguments: [true, false]) func inheritedPropertiesNeedIdentifiersOfTheirOwn(isNew: Bool) throws {
        func value(_ name: String) -> String {
            "<attribute name='\(name)' optional='YES' attributeType='Double' elementID='value'/>"
        }
        let plain = "<entity name='Base'>\(value("value"))</entity><entity name='Leaf' parentEntity='Base'/>"
        let between =
            "<entity name='Base'>\(value("renamed"))</entity>"
            + "<entity name='Between' parentEntity='Base'>\(value("value"))</entity>"
            + "<entity name='Leaf' parentEntity='Between'/>"
        let reasons = try isNew ? Self.reasons(plain, between) : Self.reasons(between, plain)
        let side = isNew ? "destination" : "source"
        #expect(reasons.map(\.entity) == ["Leaf"])
        let message = "Each \(side) property must have a unique renaming identifier"
        #expect(reasons.first?.message.hasPrefix(message) == true)
    }

    @Test func propertiesArePairedByIdentifier() throws {
        let mapping = try Self.mappings(
            entity(
                "<attribute name='a' attributeType='Date'/><attribute name='gone' attributeType='Date'/>"
                    + "<relationship name='r' optional='YES' destinationEntity='A'/>"
                    + "<attribute name='kind' attributeType='Date'/>"),
            entity(
                "<attribute name='b' elementID='a' attributeType='Date'/><attribute name='n' optional='YES' attributeType='Date'/>"
                    + "<relationship name='s' elementID='r' optional='YES' destinationEntity='A'/>"
                    + "<relationship name='kind' optional='YES' destinationEntity='A'/>"))
        let only = try #require(mapping.entityMappings.first)
        #expect(only.attributeMappings == [.init(name: "b", sourceName: "a"), .init(name: "n", sourceName: nil)])
        // An attribute doesn't become a relationship: the relationship is new.
        #expect(only.relationshipMappings == [.init(name: "kind", sourceName: nil), .init(name: "s", sourceName: "r")])
    }

    @Test(arguments: [
        ("Integer 16", "Integer 64"), ("Integer 64", "Integer 16"), ("Integer 32", "Double"), ("Float", "Decimal"),
        ("Decimal", "Double"), ("Boolean", "Integer 32"), ("Integer 16", "Boolean"), ("Double", "Boolean"),
        ("String", "String"), ("Undefined", "Undefined"), ("Binary", "Binary"),
    ])
    func convertsCompatibleTypes(_ old: String, _ new: String) throws {
        #expect(try Self.reasons(Self.attribute(old), Self.attribute(new)).isEmpty)
    }

    @Test(arguments: [
        ("Integer 16", "String"), ("String", "Integer 16"), ("String", "URI"), ("Date", "Double"), ("Double", "Date"),
        ("Binary", "String"), ("Binary", "Transformable"), ("Transformable", "Binary"), ("UUID", "String"),
        ("Undefined", "String"), ("String", "Undefined"), ("Boolean", "String"), ("Boolean", "Date"),
    ])
    func refusesIncompatibleTypes(_ old: String, _ new: String) throws {
        let reasons = try Self.reasons(Self.attribute(old), Self.attribute(new))
        #expect(reasons.map(\.code) == [134190])
        #expect(reasons.map(\.entity) == ["A"])
        #expect(reasons.map(\.property) == ["x"])
        #expect(reasons[0].message.hasPrefix("Source and destination attribute types are incompatible"))
        #expect(!reasons[0].remedy.isEmpty)
        // A transient attribute has no values to convert.
        #expect(try Self.reasons(Self.attribute(old, "transient='YES'"), Self.attribute(new)).isEmpty)
    }

    @Test func convertsBinaryAndTransformableIfAllowed() throws {
        func allowed(_ type: String, _ more: String = "") -> String {
            entity(
                """
                <attribute name='x' attributeType='\(type)' \(more)>
                <userInfo><entry key='NSMigrationAllowTypeTransformation' value='YES'/></userInfo></attribute>
                """)
        }
        #expect(try Self.reasons(allowed("Binary"), allowed("Transformable")).isEmpty)
        #expect(try Self.reasons(allowed("Transformable"), allowed("Binary")).isEmpty)
        let external = "allowsExternalBinaryDataStorage='YES'"
        #expect(try Self.reasons(allowed("Binary", external), allowed("Transformable")).count == 1)
        #expect(try Self.reasons(allowed("Binary"), allowed("String")).count == 1)
    }

    @Test func externalData() throws {
        let external = Self.attribute("Binary", "allowsExternalBinaryDataStorage='YES'")
        #expect(try Self.reasons(Self.attribute("Binary"), external).isEmpty)
        #expect(try Self.reasons(external, external).isEmpty)
        let reasons = try Self.reasons(external, Self.attribute("Binary"))
        #expect(reasons.map(\.message) == ["Unable to use inferred mapping to move external reference into store."])
    }

    @Test func optionality() throws {
        let optional = Self.attribute("String", "optional='YES'")
        let mandatory = Self.attribute("String")
        let withDefault = Self.attribute("String", "defaultValueString='d'")
        for (old, new) in [(mandatory, optional), (optional, withDefault), (optional, mandatory)] {
            #expect(try Self.reasons(old, new).isEmpty)
        }
        #expect(try Self.reasons(entity(""), mandatory).isEmpty)
    }

    @Test func relationships() throws {
        func relationship(_ more: String) -> String {
            entity("<relationship name='r' optional='YES' destinationEntity='A' \(more)/>")
        }
        let toOne = relationship("maxCount='1'")
        let toMany = relationship("toMany='YES'")
        let ordered = relationship("toMany='YES' ordered='YES'")
        for (old, new) in [
            (toOne, toMany), (toMany, ordered), (ordered, toMany), (toOne, ordered), (entity(""), toOne),
            (toMany, entity("")),
        ] { #expect(try Self.reasons(old, new).isEmpty) }
        for (old, new) in [(toMany, toOne), (ordered, toOne)] {
            let reasons = try Self.reasons(old, new)
            #expect(reasons.map(\.message) == ["Can not map from a to-many to a to-one relationship"])
            #expect(reasons.map(\.property) == ["r"])
        }
    }

    /// Parent and child swap names: each inherits the property in one of the models, but it is reported only once.
    @Test func reportsARelationshipOnceIfParentAndChildSwapNames() throws {
        func family(_ parent: String, _ child: String, _ count: String) -> String {
            let property = "<relationship name='r' optional='YES' destinationEntity='\(parent)' \(count)/>"
            return "<entity name='\(parent)' \(parent == "A" ? "" : "elementID='A'")>\(property)</entity>"
                + "<entity name='\(child)' parentEntity='\(parent)' \(child == "B" ? "" : "elementID='B'")/>"
        }
        let reasons = try Self.reasons(family("A", "B", "toMany='YES'"), family("B", "A", "maxCount='1'"))
        #expect(reasons.map(\.message) == ["Can not map from a to-many to a to-one relationship"])
    }

    @Test func hierarchies() throws {
        let flat = "<entity name='A'/><entity name='B'/>"
        let underNew = "<entity name='P'/><entity name='A' parentEntity='P'/><entity name='B'/>"
        #expect(try Self.reasons(flat, underNew).isEmpty, "a new parent of one")
        #expect(try Self.reasons(underNew, flat).isEmpty, "out of a hierarchy")
        let pulledUp =
            "<entity name='P'><attribute name='x' optional='YES' attributeType='Date'/></entity>"
            + "<entity name='A' parentEntity='P'/><entity name='B'/>"
        let below =
            "<entity name='P'/><entity name='A' parentEntity='P'>"
            + "<attribute name='x' optional='YES' attributeType='Date'/></entity><entity name='B'/>"
        #expect(try Self.reasons(below, pulledUp).isEmpty, "up")
        #expect(try Self.reasons(pulledUp, below).isEmpty, "down")
        for merged in [
            "<entity name='A'/><entity name='B' parentEntity='A'/>",
            "<entity name='P'/><entity name='A' parentEntity='P'/><entity name='B' parentEntity='P'/>",
        ] {
            let reasons = try Self.reasons(flat, merged)
            #expect(reasons.map(\.code) == [134190])
            #expect(reasons[0].message.hasPrefix("Cannot merge multiple root entity source tables"))
            #expect(reasons[0].message.hasSuffix("A, B"))
        }
    }

    /// Properties that an entity inherits from its new parent are paired with those of its old parent, and reported
    /// once.
    @Test func aMovedEntityInheritsAnotherType() throws {
        func models(_ parent: String) -> String {
            "<entity name='Root'/>"
                + "<entity name='P' parentEntity='Root'><attribute name='x' optional='YES' attributeType='Decimal'/></entity>"
                + "<entity name='Q' parentEntity='Root'><attribute name='x' optional='YES' attributeType='String'/></entity>"
                + "<entity name='C' parentEntity='\(parent)'/><entity name='D' parentEntity='C'/>"
        }
        let reasons = try Self.reasons(models("P"), models("Q"))
        #expect(reasons.map(\.entity) == ["C"])
        #expect(reasons.map(\.property) == ["x"])
        #expect(reasons.first?.message == "Source and destination attribute types are incompatible: Decimal and String")
    }

    @Test func identifiersAreUnique() throws {
        let twice = "<entity name='A'/><entity name='B' elementID='A'/>"
        #expect(try Self.reasons("<entity name='A'/>", twice)[0].message.hasPrefix("Each destination entity"))
        #expect(try Self.reasons(twice, "<entity name='A'/>")[0].message.hasPrefix("Each source entity"))
        let properties = entity(
            "<attribute name='x' attributeType='Date'/><attribute name='y' elementID='x' attributeType='Date'/>")
        #expect(try Self.reasons(entity(""), properties)[0].message.hasPrefix("Each destination property"))
        #expect(try Self.reasons(properties, entity(""))[0].message.hasPrefix("Each source property"))
    }

    @Test func reportsEveryReason() throws {
        let reasons = try Self.reasons(
            entity("<attribute name='x' attributeType='Date'/><attribute name='y' attributeType='Date'/>"),
            entity("<attribute name='x' attributeType='String'/><attribute name='y' attributeType='UUID'/>"))
        #expect(reasons.map(\.property) == ["x", "y"])
        // A property that several entities inherit is reported once.
        let inherited = try Self.reasons(
            Self.attribute("Date") + "<entity name='B' parentEntity='A'/><entity name='C' parentEntity='A'/>",
            Self.attribute("String") + "<entity name='B' parentEntity='A'/><entity name='C' parentEntity='A'/>")
        #expect(inherited.count == 1)
    }
}
