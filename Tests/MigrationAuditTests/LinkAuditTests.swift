import Testing

@testable import MigrationAudit

/// The audit of relationships.
struct LinkAuditTests {
    private func to(_ name: String, _ destination: String, _ inverse: String, _ more: String = "") -> String {
        "<relationship name='\(name)' optional='YES' destinationEntity='\(destination)' inverseName='\(inverse)' "
            + "inverseEntity='\(destination)' deletionRule='Nullify' \(more.isEmpty ? "maxCount='1'" : more)/>"
    }

    private func model(_ a: String, _ b: String) -> String {
        "<entity name='A'>\(a)</entity><entity name='B'>\(b)</entity>"
    }

    private let objects = [
        "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)",
        "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 2, 1), (3, 2, 1)",
    ]

    private func join(_ pairs: String) -> [String] {
        [
            "CREATE TABLE Z_1BS (Z_1AS INTEGER, Z_2BS INTEGER, PRIMARY KEY (Z_1AS, Z_2BS))",
            "INSERT INTO Z_1BS VALUES " + pairs,
        ]
    }

    @Test(arguments: [("1", true), ("2", false), ("NULL", false)])
    func checksToOneLinks(_ after: String, _ passes: Bool) throws {
        let both = model(to("bs", "B", "a", "toMany='YES'"), to("a", "A", "bs"))
        let stores = try AuditedStores(
            both, both, rows: objects, before: ["UPDATE ZB SET ZA = 1 WHERE Z_PK = 2"],
            after: ["UPDATE ZB SET ZA = \(after) WHERE Z_PK = 2"])
        #expect(try (stores.audit() == nil) == passes)
    }

    /// The table of the first relationship has a name that the second's table might have.
    @Test(arguments: [("(1, 2)", true), ("(2, 1)", false)])
    func distinguishesTablesWhoseNamesDifferOnlyInCase(_ after: String, _ passes: Bool) throws {
        let many = "toMany='YES'"
        let entity =
            "<entity name='A'>" + to("ITEM", "A", "b", many) + to("b", "A", "ITEM", many)
            + to("item", "A", "children", many) + to("children", "A", "item", many) + "</entity>"
        func tables(_ pairs: String) -> [String] {
            [
                "CREATE TABLE Z_1ITEM (Z_1B INTEGER, Z_1ITEM INTEGER, PRIMARY KEY (Z_1B, Z_1ITEM))",
                "CREATE TABLE Z_1CHILDREN (Z_1ITEM1 INTEGER, Z_1CHILDREN INTEGER, PRIMARY KEY (Z_1ITEM1, Z_1CHILDREN))",
                "INSERT INTO Z_1ITEM VALUES (1, 1)", "INSERT INTO Z_1CHILDREN VALUES " + pairs,
            ]
        }
        let stores = try AuditedStores(
            entity, entity, rows: [objects[0]], before: tables("(1, 2)"), after: tables(after))
        #expect(try (stores.audit() == nil) == passes)
    }

    @Test(arguments: [
        ("(1, 1), (1, 2), (2, 2)", true), ("(1, 1), (1, 2)", false), ("(1, 1), (1, 2), (2, 1)", false),
        ("(1, 1), (1, 2), (2, 2), (2, 3)", false),
    ])
    func checksManyToManyLinks(_ after: String, _ passes: Bool) throws {
        let both = model(to("bs", "B", "as", "toMany='YES'"), to("as", "A", "bs", "toMany='YES'"))
        let stores = try AuditedStores(
            both, both, rows: objects, before: join("(1, 1), (1, 2), (2, 2)"), after: join(after))
        #expect(try (stores.audit() == nil) == passes)
    }

    /// The links move from a column of B to a join table.
    @Test(arguments: [("(1, 1), (1, 2)", true), ("(1, 1)", false), ("(1, 1), (1, 2), (2, 2)", false)])
    func followsToOneLinksIntoAJoinTable(_ after: String, _ passes: Bool) throws {
        let stores = try AuditedStores(
            model(to("bs", "B", "as", "toMany='YES'"), to("as", "A", "bs")),
            model(to("bs", "B", "as", "toMany='YES'"), to("as", "A", "bs", "toMany='YES'")), rows: objects,
            before: ["UPDATE ZB SET ZAS = 1 WHERE Z_PK < 3"], after: join(after))
        #expect(try (stores.audit() == nil) == passes)
    }

    /// Without an inverse each B has at most one A. If it had several, it keeps one of them.
    @Test(arguments: [
        ("1, 1, NULL", true), ("1, 2, NULL", true), ("NULL, 1, NULL", false), ("1, NULL, NULL", false),
        ("2, 1, NULL", false), ("1, 1, 1", false),
    ])
    func requiresOneOfSeveralOwners(_ owners: String, _ passes: Bool) throws {
        let stores = try AuditedStores(
            model(to("bs", "B", "as", "toMany='YES'"), to("as", "A", "bs", "toMany='YES'")),
            model(
                "<relationship name='bs' optional='YES' toMany='YES' destinationEntity='B' deletionRule='Nullify'/>", ""
            ),
            rows: objects, before: join("(1, 1), (1, 2), (2, 2)"),
            after: owners.split(separator: ",").enumerated().map { "UPDATE ZB SET Z1BS = \($1) WHERE Z_PK = \($0 + 1)" }
        )
        #expect(try (stores.audit() == nil) == passes)
    }

    /// The position numbers may change, but not the order.
    @Test(arguments: [
        ("1, 2, 3", true), ("10, 20, 21", true), ("2, 1, 3", false), ("1, 1, 3", false), ("1, NULL, 3", false),
    ])
    func checksTheOrderOfTargets(_ places: String, _ passes: Bool) throws {
        let both = model(to("bs", "B", "a", "toMany='YES' ordered='YES'"), to("a", "A", "bs"))
        let stores = try AuditedStores(
            both, both, rows: objects + ["UPDATE ZB SET ZA = 1"], before: ["UPDATE ZB SET Z_FOK_A = Z_PK * 1024"],
            after: places.split(separator: ",").enumerated().map {
                "UPDATE ZB SET Z_FOK_A = \($1) WHERE Z_PK = \($0 + 1)"
            })
        #expect(try (stores.audit() == nil) == passes)
    }

    /// The target's entity is renumbered, also beside the reference.
    @Test(arguments: [("3", true), ("2", false), ("NULL", false)])
    func checksTheTargetsEntityNumber(_ number: String, _ passes: Bool) throws {
        let reference =
            "<relationship name='p' optional='YES' maxCount='1' destinationEntity='P' deletionRule='Nullify'/>"
        let child = "<entity name='Q' parentEntity='P'/>"
        let stores = try AuditedStores(
            "<entity name='A'>\(reference)</entity><entity name='P'/>" + child,
            "<entity name='A'>\(reference)</entity><entity name='P'/><entity name='N' parentEntity='P'/>" + child,
            before: [
                "INSERT INTO ZP VALUES (5, 3, 1)",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZP, Z2_P) VALUES (1, 1, 1, 5, 3)",
            ],
            after: [
                "INSERT INTO ZP VALUES (5, 4, 1)",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZP, Z2_P) VALUES (1, 1, 1, 5, \(number) + 1)",
            ])
        #expect(try (stores.audit() == nil) == passes)
    }

    /// The target's entity is removed, so its links must be too.
    @Test(arguments: [("NULL", true), ("1", false)])
    func removesLinksToRemovedTargets(_ after: String, _ passes: Bool) throws {
        func model(_ more: String) -> String {
            "<entity name='A'><relationship name='p' optional='YES' maxCount='1' destinationEntity='P' "
                + "deletionRule='Nullify'/></entity><entity name='P'/>" + more
        }
        let stores = try AuditedStores(
            model("<entity name='Q' parentEntity='P'/>"), model(""),
            before: [
                "INSERT INTO ZP VALUES (1, 3, 1)",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZP, Z2_P) VALUES (1, 1, 1, 1, 3)",
            ],
            after: ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZP) VALUES (1, 1, 1, \(after))"])
        #expect(try (stores.audit() == nil) == passes)
    }
}
