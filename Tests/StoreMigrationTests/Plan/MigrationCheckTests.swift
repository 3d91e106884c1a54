import Testing

@testable import MappingModels
@testable import StoreMigration

@Suite struct MigrationCheckTests {
    private static func check(
        _ old: String, _ new: String, through between: [(name: String, content: String)] = []
    ) throws -> MigrationCheck {
        let old = try model(old)
        return MigrationCheck(
            from: old, hashes: old.entityVersionHashesByName, to: try model(new), named: "new",
            intermediates: try between.map { ($0.name, try model($0.content)) })
    }

    private static func warnings(_ old: String, _ new: String) throws -> [MigrationFinding] {
        warnings(try check(old, new))
    }

    private static func warnings(_ check: MigrationCheck) -> [MigrationFinding] {
        check.findings.filter { $0.severity == .warning }
    }

    @Test func warnsOfRemovedContent() throws {
        let old = entity("<attribute name='x' optional='YES' attributeType='String'/>") + "<entity name='B'/>"
        let removed = try Self.check(old, entity("")).findings.filter { $0.severity == .warning }
        #expect(removed.map(\.entity) == ["B", "A"] || removed.map(\.entity) == ["A", "B"])
        #expect(removed.allSatisfy { $0.isRemoval && $0.message.contains("removed") })
    }

    private static func attribute(_ name: String, _ more: String = "") -> String {
        entity("<attribute name='\(name)' optional='YES' attributeType='String' \(more)/>")
    }

    @Test func ignoresChangesThatNoHashCovers() throws {
        let check = try Self.check(
            Self.attribute("x", "defaultValueString='1'"), Self.attribute("x", "defaultValueString='2' indexed='YES'"))
        #expect(check.verdict == .compatible)
        #expect(check.findings.isEmpty && check.differingEntities.isEmpty)
    }

    @Test func listsTheDifferingEntities() throws {
        let check = try Self.check("<entity name='A'/><entity name='B'/>", "<entity name='A' isAbstract='YES'/>")
        #expect(check.differingEntities.map(\.name) == ["A", "B"])
        #expect(check.differingEntities.map { $0.newHash == nil } == [false, true])
        #expect(check.differingEntities.allSatisfy { $0.oldHash?.count == 32 })
    }

    /// Its own objects stay, but no request finds them.
    @Test(arguments: [true, false]) func warnsOfAnEntityThatBecomesAbstract(wasAbstract: Bool) throws {
        let child = "<entity name='C' parentEntity='P'/>"
        let old = "<entity name='P' isAbstract='\(wasAbstract ? "YES" : "NO")'/>\(child)"
        let check = try Self.check(old, "<entity name='P' isAbstract='YES'/>\(child)<entity name='N'/>")
        let warnings = check.findings.filter { $0.severity == .warning }
        #expect(warnings.map(\.entity) == (wasAbstract ? [] : ["P"]))
        #expect(check.steps.flatMap(\.remarks).contains { $0.contains("becomes abstract") } == !wasAbstract)
    }

    /// An attribute that moves to a parent is reported as if it had stayed.
    @Test(arguments: [true, false])
    func warnsOfAnAttributeThatNarrowsAndMoves(_ isNewParent: Bool) throws {
        func count(_ type: String) -> String { "<attribute name='count' optional='YES' attributeType='\(type)'/>" }
        let parent = "<entity name='P'>", child = "<entity name='A' parentEntity='P'>"
        let old =
            isNewParent ? entity(count("Integer 64")) : parent + "</entity>" + child + count("Integer 64") + "</entity>"
        let found = try Self.warnings(old, parent + count("Integer 16") + "</entity>" + child + "</entity>")
        #expect(found.map { "\($0.entity ?? "").\($0.property ?? "")" } == ["A.count"])
        #expect(found.first?.message.contains("values that don't fit are truncated") == true)
    }

    /// The chain of the notes: a, then b known as a, then c known as b, which loses the values.
    @Test func warnsOfAnIdentifierThatNamesThePreviousVersion() throws {
        let first = Self.attribute("a")
        let second = Self.attribute("b", "elementID='a'")
        let wrong = Self.attribute("c", "elementID='b'")
        #expect(try Self.warnings(first, second).isEmpty)
        let lost = try Self.warnings(second, wrong)
        #expect(lost.map(\.property) == ["c"])
        #expect(lost[0].message.contains("values are lost") && lost[0].remedy.contains("“a”"))
        #expect(try Self.warnings(first, wrong).map(\.property) == ["c"])
        let right = Self.attribute("c", "elementID='a'")
        #expect(try Self.warnings(second, right).isEmpty && Self.warnings(first, right).isEmpty)
    }

    @Test func warnsOfAnEntitysIdentifierThatNamesThePreviousVersion() throws {
        let second = "<entity name='B' elementID='A'/>"
        #expect(try Self.warnings("<entity name='A'/>", second).isEmpty)
        let lost = try Self.warnings(second, "<entity name='C' elementID='B'/>")
        #expect(lost.map(\.entity) == ["C"])
        #expect(lost[0].remedy.contains("“A”"))
        // The same holds from the first version, as for attributes and relationships.
        let first = try Self.warnings("<entity name='A'/>", "<entity name='C' elementID='B'/>")
        #expect(first.map(\.entity) == ["C"])
        #expect(first[0].message.contains("nothing in the older version has the renaming identifier “B”"))
        #expect(try Self.warnings("", "<entity name='C' elementID='B'/>").isEmpty)
    }

    /// Core Data would refuse. Two steps succeed, but lose what the version between lacks.
    @Test func warnsOfStepsThatLoseValues() throws {
        let text = entity("<attribute name='x' optional='YES' attributeType='String'/>")
        let number = entity("<attribute name='x' optional='YES' attributeType='Integer 16'/>")
        let check = try Self.check(text, number, through: [("between", entity(""))])
        #expect(check.verdict == .stepwise(["between", "new"]))
        let lost = Self.warnings(check)
        #expect(lost.map(\.entity) == ["A"] && lost.map(\.property) == ["x"])
        #expect(lost.first?.message.contains("all values are lost on the way: new adds") == true)
        let without = try Self.check(
            text + "<entity name='B'/>", number + "<entity name='B'/>", through: [("between", entity(""))])
        #expect(Self.warnings(without).map(\.entity) == ["A", "B"])
        // Content that the version between keeps survives.
        let kept = try Self.check(
            entity("<attribute name='x' optional='YES' attributeType='String'/>\(Self.value("y"))"),
            entity("<attribute name='x' optional='YES' attributeType='Integer 16'/>\(Self.value("y"))"),
            through: [("between", entity(Self.value("y")))])
        #expect(Self.warnings(kept).map(\.property) == ["x"])
    }

    private static func value(_ name: String) -> String {
        "<attribute name='\(name)' optional='YES' attributeType='Date'/>"
    }

    @Test func warnsOfNewUniqueness() throws {
        func unique(_ names: String..., with more: String = "") -> String {
            entity(
                Self.value("x") + Self.value("y") + "<uniquenessConstraints>"
                    + names.map { "<uniquenessConstraint><constraint value='\($0)'/></uniquenessConstraint>" }.joined()
                    + "</uniquenessConstraints>" + more)
        }
        let plain = entity(Self.value("x") + Self.value("y"))
        let found = try Self.warnings(plain, unique("x"))
        #expect(found.map(\.code) == [134111] && found.map(\.property) == ["x"])
        #expect(found.map(\.isConditional) == [true])
        #expect(try Self.warnings(unique("x"), unique("x", "y")).map(\.property) == ["y"])
        #expect(try Self.warnings(unique("x", "y"), unique("x")).isEmpty)
        #expect(try Self.warnings("<entity name='B'/>", "<entity name='B'/>" + unique("x")).isEmpty)
        let check = try Self.check(plain, unique("x"))
        #expect(check.resolvingConditions(with: []).findings.isEmpty)
        #expect(check.resolvingConditions(with: [Self.obstacle(134111)]).verdict == .refused(code: 134111))
    }

    @Test func warnsOfMandatoryValuesThatMayBeMissing() throws {
        let optional = Self.attribute("x")
        let mandatory = entity("<attribute name='x' attributeType='String'/>")
        let found = try Self.warnings(optional, mandatory)
        #expect(found.map(\.code) == [134110])
        #expect(found.map(\.property) == ["x"])
        #expect(try Self.warnings(entity(""), mandatory).count == 1)
        let withDefault = entity("<attribute name='x' attributeType='String' defaultValueString='d'/>")
        #expect(try Self.warnings(optional, withDefault).isEmpty)
        let relationship = entity("<relationship name='r' destinationEntity='A'/>")
        #expect(try Self.warnings(entity(""), relationship).map(\.property) == ["r"])
    }

    /// The store's content replaces a warning about values that may be missing.
    @Test func theStoreDecidesOnMissingValues() throws {
        let value = "<attribute name='x' optional='YES' attributeType='Date'/>"
        let mandatory = value.replacing("optional='YES'", with: "")
        let check = try Self.check(entity(value), entity(mandatory))
        #expect(check.resolvingConditions(with: []).findings.isEmpty)
        let failing = check.resolvingConditions(with: [Self.obstacle(134110)])
        #expect(failing.verdict == .refused(code: 134110))
        #expect(failing.findings.map(\.severity) == [.error])
    }

    private static func obstacle(_ code: Int) -> MigrationFinding {
        MigrationFinding(.error, code: code, entity: "A", "found in the store", remedy: "none")
    }

    @Test func warnsOfLostValues() throws {
        let wide = entity("<attribute name='x' optional='YES' attributeType='Integer 64'/>")
        let narrow = entity("<attribute name='x' optional='YES' attributeType='Integer 16'/>")
        #expect(try Self.warnings(wide, narrow).count == 1)
        #expect(try Self.warnings(narrow, wide).isEmpty)
        let kind = entity("<relationship name='x' optional='YES' destinationEntity='A'/>")
        #expect(try Self.warnings(wide, kind).map(\.property) == ["x"])
        func pointing(_ name: String, _ more: String = "") -> String {
            "<entity name='\(name)' \(more)/>"
                + entity("<relationship name='r' optional='YES' destinationEntity='\(name)'/>")
        }
        #expect(try Self.warnings(pointing("B"), pointing("C")).map(\.property) == [nil, "r"])
        #expect(try Self.warnings(pointing("B"), pointing("C", "elementID='B'")).isEmpty)
        let removed = try Self.check(wide, entity("")).findings
        #expect(removed.map(\.severity) == [.warning])
    }

    @Test func takesSeveralStepsIfOneIsNotEnough() throws {
        let old = entity("<attribute name='x' attributeType='Date'/>")
        let new = entity("<attribute name='x' attributeType='String' optional='YES'/>")
        #expect(try Self.check(old, new).verdict == .refused(code: 134140))
        let stepwise = try Self.check(
            old, new,
            through: [
                ("one", entity("<attribute name='y' optional='YES' attributeType='Date'/>")), ("two", entity("")),
            ])
        #expect(stepwise.verdict == .stepwise(["one", "new"]))
        #expect(stepwise.findings.allSatisfy { $0.severity != .error })
        let nowhere = try Self.check(
            old, new, through: [("one", entity("<attribute name='x' attributeType='UUID'/>"))])
        #expect(nowhere.verdict == .refused(code: 134140))
        #expect(nowhere.findings.map(\.code) == [134190])
    }

    @Test func refusesAStoreWhoseModelIsUnknown() throws {
        let check = MigrationCheck(
            from: nil, hashes: ["A": [1]], to: try model(entity("")), named: "new")
        #expect(check.verdict == .refused(code: 134130))
        #expect(check.findings.map(\.code) == [134130])
    }
}
