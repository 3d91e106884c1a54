import SQLiteStore
import Testing

@testable import MigrationAudit

/// The count of what a migrated copy lacks, by its own reading of both stores.
struct LossCountTests {
    private func many(_ name: String, _ destination: String, _ inverse: String, _ more: String = "") -> String {
        "<relationship name='\(name)' optional='YES' toMany='YES' \(more) destinationEntity='\(destination)' "
            + "inverseName='\(inverse)' inverseEntity='\(destination)'/>"
    }

    private func one(_ name: String, _ destination: String, _ inverse: String) -> String {
        "<relationship name='\(name)' optional='YES' maxCount='1' destinationEntity='\(destination)' "
            + "inverseName='\(inverse)' inverseEntity='\(destination)'/>"
    }

    private func attribute(_ name: String, _ type: String, _ more: String = "optional='YES'") -> String {
        "<attribute name='\(name)' attributeType='\(type)' \(more)/>"
    }

    private func entity(_ name: String, _ content: String, parent: String? = nil) -> String {
        "<entity name='\(name)'\(parent.map { " parentEntity='\($0)'" } ?? "")>\(content)</entity>"
    }

    /// Z.p led to objects of P and of A, which inherited from P.
    @Test func countsLinksToASubentityThatLeavesItsHierarchy() throws {
        let related = entity("P", many("zs", "Z", "p")) + entity("Z", one("p", "P", "zs"))
        let stores = try AuditedStores(
            related + entity("A", "", parent: "P"), related + entity("A", ""),
            before: [
                "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 2, 1)",
                "INSERT INTO ZZ (Z_PK, Z_ENT, Z_OPT, ZP) VALUES (1, 3, 1, 1), (2, 3, 1, 2), (3, 3, 1, 2)",
            ],
            after: [
                "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1)",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (2, 1, 1)",
                "INSERT INTO ZZ (Z_PK, Z_ENT, Z_OPT, ZP) VALUES (1, 3, 1, 1), (2, 3, 1, NULL), (3, 3, 1, NULL)",
            ])
        #expect(try stores.losses() == ["Z.p can't lead to some of its objects any more: 2 links are removed"])
    }

    /// Without an inverse, an object is related to by one object only: also if it was related to itself.
    @Test func countsLinksOfARelationshipThatWasItsOwnInverse() throws {
        let stores = try AuditedStores(
            entity("A", many("links", "A", "links")),
            entity("A", "<relationship name='links' optional='YES' toMany='YES' destinationEntity='A'/>"),
            before: [
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (6, 1, 1)",
                "CREATE TABLE Z_1LINKS (Z_1LINKS INTEGER, REFLEXIVE INTEGER, PRIMARY KEY (Z_1LINKS, REFLEXIVE))",
                "INSERT INTO Z_1LINKS (Z_1LINKS, REFLEXIVE) VALUES (1, 6), (6, 6)",
            ],
            after: ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, Z1LINKS) VALUES (1, 1, 1, NULL), (6, 1, 1, 1)"])
        #expect(
            try stores.losses() == [
                "A.links has no inverse, so no two objects can be related to the same object: 1 link is removed"
            ])
    }

    @Test func countsThePositionsOfAnOrderThatIsGivenUp() throws {
        func related(_ ordered: String) -> String {
            entity("P", many("zs", "Z", "p", ordered)) + entity("Z", one("p", "P", "zs"))
        }
        let objects = "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)"
        let stores = try AuditedStores(
            related("ordered='YES'"), related(""), rows: [objects],
            before: [
                "INSERT INTO ZZ (Z_PK, Z_ENT, Z_OPT, ZP, Z_FOK_P) VALUES (1, 2, 1, 1, 3072), (2, 2, 1, 1, 2048), "
                    + "(3, 2, 1, 2, 2048)"
            ], after: ["INSERT INTO ZZ (Z_PK, Z_ENT, Z_OPT, ZP) VALUES (1, 2, 1, 1), (2, 2, 1, 1), (3, 2, 1, 2)"])
        // A single object has no order.
        #expect(try stores.losses() == ["P.zs is no longer ordered: 2 positions are removed"])
    }

    @Test(arguments: [
        ("'old'", "'NEW'", "1 value is changed"), ("'old'", "NULL", "1 value is removed"), ("NULL", "'NEW'", nil),
        ("'NEW'", "'NEW'", nil),
    ])
    func comparesAnAttributeThatBecomesDerived(_ before: String, _ after: String, _ words: String?) throws {
        let derived = attribute("t", "String", "optional='YES' derived='YES' derivationExpression='uppercase:(u)'")
        func row(_ value: String) -> String {
            "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZT, ZU) VALUES (1, 1, 1, \(value), 'new')"
        }
        let stores = try AuditedStores(
            entity("A", attribute("t", "String") + attribute("u", "String")),
            entity("A", derived + attribute("u", "String")), before: [row(before)], after: [row(after)])
        #expect(
            try stores.losses() == (words.map { ["A.t becomes derived, which replaces its values: \($0)"] } ?? []))
    }

    /// The stored bytes stay, but an app reads another number.
    @Test func countsNumbersThatANarrowerTypeCantHold() throws {
        func row(_ key: Int, _ value: String) -> String {
            "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZN) VALUES (\(key), 1, 1, \(value))"
        }
        let stores = try AuditedStores(
            entity("A", attribute("n", "Integer 64")), entity("A", attribute("n", "Integer 16")),
            rows: ["70000", "-32768", "32768", "NULL"].enumerated().map { row($0 + 1, $1) })
        #expect(try stores.losses() == ["A.n gets a type that can't hold all of its values: 2 values are changed"])
    }

    @Test func doesntCountADefaultInPlaceOfNoValue() throws {
        let mandatory = attribute("n", "Integer 16", "defaultValueString='7'")
        func rows(_ value: String) -> [String] {
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZN) VALUES (1, 1, 1, \(value)), (2, 1, 1, 7)"]
        }
        let stores = try AuditedStores(
            entity("A", attribute("n", "Integer 16")), entity("A", mandatory), before: rows("NULL"), after: rows("7"))
        #expect(try stores.losses() == [])
    }

    /// The older relationship's positions are those of the new one that shares its links.
    @Test func doesntCountTheOrderThatANewInverseTakes() throws {
        func related(_ name: String) -> String {
            entity("P", many(name, "Z", "p", "ordered='YES'")) + entity("Z", one("p", "P", name))
        }
        let stores = try AuditedStores(
            related("zs"), related("items"),
            rows: [
                "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1)",
                "INSERT INTO ZZ (Z_PK, Z_ENT, Z_OPT, ZP, Z_FOK_P) VALUES (1, 2, 1, 1, 4096), (2, 2, 1, 1, 2048)",
            ])
        #expect(try stores.losses() == [])
    }

    /// A migration that can lose nothing needs no comparison, and a dry run of it no copy of the rows.
    @Test func knowsWhatCanLoseNothing() throws {
        let old = entity("P", many("zs", "Z", "p", "ordered='YES'")) + entity("Z", one("p", "P", "zs"))
        func canLose(_ new: String) throws -> Bool {
            let step = CountedStep(from: try model(old), to: try model(new), named: "new", kind: .inferred)
            return try !#require(LossCount([step])).isEmpty
        }
        #expect(try !canLose(old + entity("A", attribute("n", "Integer 16"))))
        #expect(
            try !canLose(
                old.replacing("name='Z'", with: "name='Y' elementID='Z'").replacing("'Z' i", with: "'Y' i")
                    .replacing("inverseEntity='Z'", with: "inverseEntity='Y'")))
        #expect(try canLose(old.replacing("ordered='YES'", with: "")))
        #expect(try canLose(entity("P", "") + entity("Z", "")))
    }
}

extension AuditedStores {
    /// Returns the sentences about what the copy lacks.
    fileprivate func losses() throws -> [String] {
        let step = CountedStep(from: old, to: new, named: "new", kind: .inferred)
        return try #require(LossCount([step])).losses(before: before, after: after).map(\.sentence).sorted()
    }
}
