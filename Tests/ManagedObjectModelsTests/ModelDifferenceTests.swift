import Testing

@testable import ManagedObjectModels

@Suite struct ModelDifferenceTests {
    private static func model(_ content: String) throws -> ManagedObjectModel {
        try XMLModelReaderTests.read("<model>\(content)</model>").model
    }

    private static let old = """
        <entity name="Car" representedClassName="Car">
            <attribute name="color" attributeType="String"/>
            <attribute name="speed" attributeType="Integer 16" defaultValueString="0"/>
            <attribute name="scratch" attributeType="Date" transient="YES"/>
            <attribute name="weight" attributeType="Double"/>
        </entity>
        <entity name="Wheel"/>
        """

    private static let new = """
        <entity name="Automobile" elementID="Car">
            <attribute name="paintColor" attributeType="String" elementID="color"/>
            <attribute name="speed" attributeType="Integer 16" defaultValueString="9"/>
            <attribute name="weight" attributeType="Decimal" optional="YES"/>
            <attribute name="owner" attributeType="String"/>
        </entity>
        <entity name="Garage"/>
        """

    private static func lines(_ old: ManagedObjectModel, _ new: ManagedObjectModel) -> [String] {
        ModelDifference(from: old, to: new).changes.map { change in
            let name = change.property.map { change.entity + "." + $0 } ?? change.entity
            let details = change.details.map { "\($0.aspect) \($0.old ?? "-")>\($0.new ?? "-")" }
            let words = [change.changesVersionHash ? "*" : "", change.kind.rawValue, name, change.oldName ?? ""]
            return (words + details).filter { !$0.isEmpty }.joined(separator: " ")
        }
    }

    /// A default of YES is a value, not a flag.
    @Test func showsADefaultOfYesAsAValue() throws {
        var attribute = AttributeDescription(name: "a", type: .boolean)
        for truth in [true, false] {
            attribute.defaultValue = .boolean(truth)
            let aspect = PropertyDescription.attribute(attribute).aspects.first { $0.name == "default" }
            #expect(aspect?.value == (truth ? "YES" : "NO") && aspect?.isFlag == false)
        }
        let optional = PropertyDescription.attribute(attribute).aspects.first { $0.name == "optional" }
        #expect(optional == nil || optional?.isFlag == true)
    }

    @Test func findsAllChanges() throws {
        #expect(
            try Self.lines(Self.model(Self.old), Self.model(Self.new)) == [
                "* renamed Automobile Car class Car>- renamingIdentifier ->Car",
                "removed Automobile.scratch",
                "* added Automobile.owner",
                "* renamed Automobile.paintColor color renamingIdentifier ->color",
                "changed Automobile.speed default 0>9",
                "* changed Automobile.weight type Double>Decimal optional ->YES",
                "* added Garage",
                "* removed Wheel",
            ])
        #expect(try Self.lines(Self.model(Self.old), Self.model(Self.old)) == [])
    }

    @Test func appliesRenamings() throws {
        let old = try Self.model(Self.old)
        let plain = try Self.model(
            Self.new.replacing(" elementID=\"Car\"", with: "").replacing(" elementID=\"color\"", with: ""))
        #expect(Self.lines(old, plain).contains("* added Automobile"))
        let renamings = try ["Car.color=paintColor", "Car=Automobile"].map { try #require(ModelRenaming($0)) }
        #expect(try plain.renamed(renamings, from: old) == Self.model(Self.new))
        for text in ["Car", "=x", "Car=", "Car.=x", "a.b.c=d", "a=b=c"] {
            #expect(ModelRenaming(text) == nil, "\(text)")
        }
        for text in ["Truck=Automobile", "Car=Truck", "Car.size=paintColor", "Wheel.size=paintColor", "Car.color=hue"] {
            let renaming = try #require(ModelRenaming(text))
            #expect(throws: ModelFault.self, "\(text)") { try Self.model(Self.new).renamed([renaming], from: old) }
        }
    }

    /// A property that was renamed twice keeps its first name as its renaming identifier.
    @Test func keepsTheFirstNameInASecondRenaming() throws {
        let second = try Self.model(
            "<entity name='A'><attribute name='b' elementID='a' attributeType='Date'/></entity>")
        let third = try Self.model("<entity name='A'><attribute name='c' attributeType='Date'/></entity>")
        let renaming = try #require(ModelRenaming("A.b=c"))
        #expect(try third.renamed([renaming], from: second).entities[0].attributes[0].renamingIdentifier == "a")
    }

    @Test func mergesModels() throws {
        let first = try Self.model("<entity name='A'/><configuration name='C'><memberEntity name='A'/></configuration>")
        let other = try Self.model(
            "<entity name='A'/><entity name='B'/><configuration name='C'><memberEntity name='B'/></configuration>")
        let merged = try ManagedObjectModel(merging: [first, other])
        #expect(merged.entities.map(\.name) == ["A", "B"])
        #expect(merged.configurations == ["C": ["A", "B"]])
        let different = try Self.model("<entity name='A' isAbstract='YES'/>")
        let fault = #expect(throws: ModelFault.self) { try ManagedObjectModel(merging: [first, different]) }
        #expect(fault?.entity == "A")
    }

    @Test func sortsVersionsByNumber() {
        let sorted = ["Notes", "Notes 2", "Notes 10", "Notes.1", "v1.2.0", "v1.10.0"].reversed()
            .sorted { $0.precedesNumerically($1) }
        #expect(sorted == ["Notes", "Notes 2", "Notes 10", "Notes.1", "v1.2.0", "v1.10.0"])
    }

    /// Renaming identifiers are unique in a model that can be migrated, but any model may be compared.
    @Test func matchesPropertiesOfOneIdentifierByName() throws {
        let twins =
            "<attribute name='due' attributeType='Date' elementID='seen'/><attribute name='seen' attributeType='Date'/>"
        let model = try Self.model("<entity name='A'>\(twins)</entity>")
        #expect(Self.lines(model, model) == [])
        let changed = try Self.model(
            "<entity name='A'>\(twins.replacing("name='seen' attributeType='Date'", with: "name='seen' attributeType='URI'"))</entity>"
        )
        #expect(Self.lines(model, changed) == ["* changed A.seen type Date>URI"])
        let entities = "<entity name='A' elementID='B'/><entity name='B'/>"
        #expect(try Self.lines(Self.model(entities), Self.model(entities)) == [])
    }
}
