import Testing

/// A migration keeps exactly the right links, and their order, when it stores them in another form.
struct CarriedLinksTests {
    private func toOne(_ name: String, to entity: String, inverse: String) -> String {
        "<relationship name='\(name)' optional='YES' maxCount='1' destinationEntity='\(entity)' "
            + "inverseName='\(inverse)' inverseEntity='\(entity)'/>"
    }

    private func toMany(_ name: String, to entity: String, inverse: String?, isOrdered: Bool = false) -> String {
        "<relationship name='\(name)' optional='YES' toMany='YES' destinationEntity='\(entity)' "
            + (inverse.map { "inverseName='\($0)' inverseEntity='\(entity)' " } ?? "")
            + (isOrdered ? "ordered='YES'" : "") + "/>"
    }

    private func entity(_ name: String, _ content: String = "", parent: String? = nil) -> String {
        "<entity name='\(name)' \(parent.map { "parentEntity='\($0)'" } ?? "")>\(content)</entity>"
    }

    private func migrated(_ old: String, _ rows: [String], to new: String) throws -> StagedStore {
        let store = try StagedStore(old, rows)
        let target = try model(new)
        try store.migrate(to: target)
        #expect(try store.differences(from: target) == [])
        return store
    }

    private let three = [
        "INSERT INTO ZLIST (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1)",
        "INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZOWNER, Z_FOK_OWNER) "
            + "VALUES (1, 1, 1, 1, 4096), (2, 1, 1, 1, 2048), (3, 1, 1, 1, 3072), (4, 1, 1, NULL, NULL)",
    ]
    private var owned: String {
        entity("List", toMany("items", to: "Item", inverse: "owner", isOrdered: true))
            + entity("Item", toOne("owner", to: "List", inverse: "items"))
    }

    @Test func orderIsKeptWhereTheInverseIsReplaced() throws {
        let new =
            entity("List", toMany("items", to: "Item", inverse: "list", isOrdered: true))
            + entity("Item", toOne("list", to: "List", inverse: "items"))
        let store = try migrated(owned, three, to: new)
        #expect(
            try store.rows("SELECT Z_PK, Z_FOK_LIST FROM ZITEM WHERE ZLIST = 1 ORDER BY Z_FOK_LIST") == [
                "2 2048", "3 3072", "1 4096",
            ])
    }

    /// Each of the two had its own links, and `items` its own order.
    @Test func orderIsKeptWhereTwoRelationshipsBecomeInverse() throws {
        let old =
            entity("List", toMany("items", to: "Item", inverse: nil, isOrdered: true))
            + entity("Item", "<relationship name='owner' optional='YES' maxCount='1' destinationEntity='List'/>")
        let rows = [
            "INSERT INTO ZLIST (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1)",
            "INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZOWNER, Z2ITEMS, Z_FOK_2ITEMS) "
                + "VALUES (1, 1, 1, 1, 1, 4096), (2, 1, 1, 1, 1, 2048), (3, 1, 1, 1, 1, 3072), (4, 1, 1, 1, NULL, NULL)",
        ]
        let store = try migrated(old, rows, to: owned)
        #expect(
            try store.rows("SELECT Z_PK FROM ZITEM WHERE ZOWNER = 1 AND Z_PK < 4 ORDER BY Z_FOK_OWNER") == [
                "2", "3", "1",
            ])
    }

    /// The join table's other end had an order of other links.
    @Test func orderIsKeptWhereOrderedRelationshipsBecomeInverse() throws {
        let old =
            entity("A", toMany("items", to: "B", inverse: "as", isOrdered: true))
            + entity(
                "B", toMany("as", to: "A", inverse: "items") + toMany("mine", to: "A", inverse: nil, isOrdered: true))
        let new =
            entity("A", toMany("items", to: "B", inverse: "mine", isOrdered: true))
            + entity("B", toMany("mine", to: "A", inverse: "items", isOrdered: true))
        let join = try joinTable(of: old)
        let rows = [
            "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, Z2MINE, Z_FOK_2MINE) VALUES (1, 1, 1, 1, 4096), (2, 1, 1, 1, 2048)",
            "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1)",
            "INSERT INTO \(join) (Z_1AS, Z_2ITEMS, Z_FOK_2ITEMS) VALUES (1, 1, 2048), (2, 1, 2048)",
        ]
        let store = try migrated(old, rows, to: new)
        #expect(
            try store.rows("SELECT Z_1MINE FROM \(try joinTable(of: new)) ORDER BY Z_FOK_1MINE") == ["2", "1"])
    }

    @Test func orderIsKeptWhereTheInverseIsDropped() throws {
        let store = try migrated(
            owned, three,
            to: entity("List", toMany("items", to: "Item", inverse: nil, isOrdered: true)) + entity("Item"))
        #expect(
            try store.rows("SELECT Z_PK FROM ZITEM WHERE Z2ITEMS = 1 ORDER BY Z_FOK_2ITEMS") == ["2", "3", "1"])
    }

    @Test func orderIsKeptWhereAToManyInverseBecomesToOne() throws {
        let old =
            entity("A", toMany("items", to: "B", inverse: "as", isOrdered: true))
            + entity("B", toMany("as", to: "A", inverse: "items"))
        let join = try joinTable(of: old)
        let rows = [
            "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1)",
            "INSERT INTO ZB (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 2, 1), (3, 2, 1)",
            "INSERT INTO \(join) (Z_1AS, Z_2ITEMS, Z_FOK_2ITEMS) VALUES (1, 1, 4096), (1, 2, 2048), (1, 3, 3072)",
        ]
        let new =
            entity("A", toMany("items", to: "B", inverse: "owner", isOrdered: true))
            + entity("B", toOne("owner", to: "A", inverse: "items"))
        let store = try migrated(old, rows, to: new)
        #expect(try store.rows("SELECT Z_PK FROM ZB WHERE ZOWNER = 1 ORDER BY Z_FOK_OWNER") == ["2", "3", "1"])
    }

    /// Rows without a position follow those that have one.
    @Test func keepsTheOrderBesideUnorderedLinks() throws {
        let old =
            entity("P") + entity("A", toMany("tags", to: "T", inverse: "as", isOrdered: true), parent: "P")
            + entity("B", toMany("tags", to: "T", inverse: "bs"), parent: "P")
            + entity("T", toMany("as", to: "A", inverse: "tags") + toMany("bs", to: "B", inverse: "tags"))
        let (ordered, plain) = (try joinTable(of: old, with: "Z_2AS"), try joinTable(of: old, with: "Z_3BS"))
        let tag = try store(old).rows(
            "SELECT name FROM pragma_table_info('\(ordered)') WHERE name LIKE 'Z!_4%' ESCAPE '!'")
        let other = try store(old).rows(
            "SELECT name FROM pragma_table_info('\(plain)') WHERE name LIKE 'Z!_4%' ESCAPE '!'")
        let (first, second) = (try #require(tag.first).unquoted, try #require(other.first).unquoted)
        let rows = [
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 3, 1)",
            "INSERT INTO ZT (Z_PK, Z_ENT, Z_OPT) VALUES (1, 4, 1), (2, 4, 1), (3, 4, 1)",
            "INSERT INTO \(ordered) (Z_2AS, \(first), Z_FOK_4TAGS) VALUES (1, 1, 4096), (1, 2, 2048), (1, 3, 3072)",
            "INSERT INTO \(plain) (Z_3BS, \(second)) VALUES (2, 1), (2, 3)",
        ]
        let new =
            entity("P", toMany("tags", to: "T", inverse: "ps", isOrdered: true)) + entity("A", parent: "P")
            + entity("B", parent: "P")
            + entity("T", toMany("ps", to: "P", inverse: "tags"))
        let store = try migrated(old, rows, to: new)
        let join = try joinTable(of: new)
        #expect(
            try store.rows("SELECT Z_1PS, Z_4TAGS, Z_FOK_4TAGS FROM \(join) ORDER BY 1, 3") == [
                "1 2 2048", "1 3 3072", "1 1 4096", "2 1 2048", "2 3 3072",
            ])
    }

    private var family: String {
        entity("P", toMany("tags", to: "T", inverse: "ps")) + entity("A", parent: "P") + entity("B", parent: "P")
    }
    private func familyRows(_ join: String) -> [String] {
        [
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 2, 1), (3, 3, 1)",
            "INSERT INTO ZT (Z_PK, Z_ENT, Z_OPT) VALUES (1, 4, 1)",
            "INSERT INTO \(join) (Z_1PS, Z_4TAGS) VALUES (1, 1), (2, 1), (3, 1)",
        ]
    }

    /// Only objects that still have the relationship keep their links.
    @Test func dropsLinksOfObjectsThatLoseTheRelationship() throws {
        let old = family + entity("T", toMany("ps", to: "P", inverse: "tags"))
        let new =
            entity("P") + entity("A", toMany("tags", to: "T", inverse: "as"), parent: "P") + entity("B", parent: "P")
            + entity("T", toMany("as", to: "A", inverse: "tags"))
        let store = try migrated(old, familyRows(try joinTable(of: old)), to: new)
        #expect(try store.rows("SELECT Z_2AS, Z_4TAGS FROM \(try joinTable(of: new))") == ["2 1"])
    }

    @Test func aRelationshipMovesDownToBothChildren() throws {
        let old = family + entity("T", toMany("ps", to: "P", inverse: "tags"))
        let new =
            entity("P") + entity("A", toMany("tags", to: "T", inverse: "as"), parent: "P")
            + entity("B", toMany("tags", to: "T", inverse: "bs"), parent: "P")
            + entity("T", toMany("as", to: "A", inverse: "tags") + toMany("bs", to: "B", inverse: "tags"))
        let store = try migrated(old, familyRows(try joinTable(of: old)), to: new)
        #expect(try store.rows("SELECT Z_2AS FROM \(try joinTable(of: new, with: "Z_2AS"))") == ["2"])
        #expect(try store.rows("SELECT Z_3BS FROM \(try joinTable(of: new, with: "Z_3BS"))") == ["3"])
    }

    /// Without an inverse an object has one owner; of several, one that still exists is kept.
    @Test func keepsTheLinkOfTheRemainingOwner() throws {
        let old =
            entity("A", parent: "P") + entity("P", toMany("tags", to: "T", inverse: "ps"))
            + entity("T", toMany("ps", to: "P", inverse: "tags"))
        let rows = [
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 2, 1)",
            "INSERT INTO ZT (Z_PK, Z_ENT, Z_OPT) VALUES (1, 3, 1)",
            "INSERT INTO \(try joinTable(of: old)) (Z_1PS, Z_3TAGS) VALUES (1, 1), (2, 1)",
        ]
        let store = try migrated(old, rows, to: entity("A", toMany("tags", to: "T", inverse: nil)) + entity("T"))
        #expect(try store.rows("SELECT Z1TAGS FROM ZT") == ["2"])
    }

    private func store(_ model: String) throws -> StagedStore { try StagedStore(model) }

    /// The name depends on the order of a hash table.
    private func joinTable(of model: String, with column: String? = nil) throws -> String {
        let names = try store(model).rows(
            "SELECT name FROM sqlite_schema AS t WHERE type = 'table' AND name LIKE 'Z!_%' ESCAPE '!' AND name NOT IN "
                + "('Z_PRIMARYKEY', 'Z_METADATA', 'Z_MODELCACHE')"
                + (column.map { " AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE name = '\($0)')" } ?? ""))
        #expect(names.count == 1)
        return try #require(names.first).unquoted
    }
}

extension String {
    fileprivate var unquoted: String { replacing("'", with: "") }
}
