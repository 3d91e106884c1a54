import CoreDataStore
import Testing

/// Derived attributes: the triggers that update them, and their migration.
@Suite struct DerivedAttributeTests {
    private static func derived(_ name: String, _ type: String, by expression: String) -> String {
        "<attribute name='\(name)' optional='YES' attributeType='\(type)' derived='YES' derivationExpression='\(expression)'/>"
    }

    private static func relationship(
        _ name: String, to destination: String, inverse: String, many: Bool = false
    ) -> String {
        "<relationship name='\(name)' optional='YES' \(many ? "toMany='YES'" : "maxCount='1'") "
            + "destinationEntity='\(destination)' inverseName='\(inverse)' inverseEntity='\(destination)'/>"
    }

    private static let authorAttributes = [
        derived("plain", "String", by: "canonical:(name)"), derived("twin", "String", by: "name"),
        derived("amount", "Integer 64", by: "books.@count"), derived("words", "Integer 64", by: "sum:(books.words)"),
        derived("longest", "Integer 64", by: "books.words.@max"),
        derived("shortest", "Integer 64", by: "min:(books.words)"),
        derived("prizeCount", "Integer 64", by: "count:(prizes)"),
    ]
    private static let bookAttributes = [
        derived("by", "String", by: "author.name"), derived("shout", "String", by: "uppercase:(author.name)"),
        derived("saved", "Date", by: "now()"),
    ]

    /// A model of books, authors and their prizes; authors inherit from persons.
    private static func library(_ authors: [String], _ books: [String], _ more: String = "") -> String {
        "<entity name='Person'><attribute name='name' optional='YES' attributeType='String'/></entity>"
            + "<entity name='Author' parentEntity='Person'>\(authors.joined())"
            + relationship("books", to: "Book", inverse: "author", many: true)
            + relationship("prizes", to: "Prize", inverse: "authors", many: true)
            + "</entity><entity name='Book'><attribute name='words' optional='YES' attributeType='Integer 64'/>"
            + books.joined() + relationship("author", to: "Author", inverse: "books") + "</entity>"
            + "<entity name='Prize'>\(relationship("authors", to: "Author", inverse: "prizes", many: true))</entity>\(more)"
    }

    /// Author is number 3 (after Book and Person), Prize 4.
    private static let people = [
        "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 3, 1, 'Zoë'), (2, 3, 1, 'Émile'), (3, 2, 1, 'Nobody')",
        "INSERT INTO ZBOOK (Z_PK, Z_ENT, Z_OPT, ZWORDS, ZAUTHOR) VALUES (1, 1, 1, 100, 1), (2, 1, 1, 250, 1), "
            + "(3, 1, 1, NULL, 1), (4, 1, 1, 70, 2), (5, 1, 1, 9, NULL)",
        "INSERT INTO ZPRIZE (Z_PK, Z_ENT, Z_OPT) VALUES (1, 4, 1), (2, 4, 1)",
        "INSERT INTO Z_3PRIZES VALUES (1, 1), (1, 2), (2, 1)",
    ]

    private static let changes = [
        "UPDATE ZPERSON SET ZNAME = 'Ægir', Z_OPT = 2 WHERE Z_PK = 1", "UPDATE ZBOOK SET ZAUTHOR = 2 WHERE Z_PK = 2",
        "UPDATE ZBOOK SET ZWORDS = 20 WHERE Z_PK = 4", "UPDATE ZBOOK SET ZWORDS = 3 WHERE Z_PK = 3",
        "UPDATE ZBOOK SET ZAUTHOR = NULL WHERE Z_PK = 1", "UPDATE ZBOOK SET ZAUTHOR = 1, ZWORDS = 500 WHERE Z_PK = 5",
        "DELETE FROM ZBOOK WHERE Z_PK = 2", "DELETE FROM Z_3PRIZES WHERE Z_3AUTHORS = 1 AND Z_4PRIZES = 2",
        "UPDATE ZBOOK SET ZWORDS = NULL WHERE Z_PK = 3", "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT) VALUES (4, 3, 1)",
    ]

    private let authors =
        "SELECT Z_PK, ZTWIN, ZAMOUNT, ZWORDS, ZLONGEST, ZSHORTEST, ZPRIZECOUNT FROM ZPERSON WHERE Z_ENT = 3"
    private let books = "SELECT Z_PK, ZBY, ZSHOUT FROM ZBOOK"
    /// A query for the same values, computed from other columns.
    private let expectedAuthors = """
        SELECT Z_PK, ZNAME, (SELECT count(*) FROM ZBOOK WHERE ZAUTHOR = p.Z_PK),
          (SELECT ifnull(sum(ZWORDS), 0) FROM ZBOOK WHERE ZAUTHOR = p.Z_PK),
          (SELECT max(ZWORDS) FROM ZBOOK WHERE ZAUTHOR = p.Z_PK), (SELECT min(ZWORDS) FROM ZBOOK WHERE ZAUTHOR = p.Z_PK),
          (SELECT count(*) FROM Z_3PRIZES WHERE Z_3AUTHORS = p.Z_PK) FROM ZPERSON AS p WHERE Z_ENT = 3
        """

    @Test func triggersUpdateTheValues() throws {
        let model = Self.library(Self.authorAttributes, Self.bookAttributes)
        for count in 0...Self.changes.count {
            let done = Array(Self.changes.prefix(count))
            let store = try StagedStore(model, Self.people + done)
            #expect(try store.rows(authors) == store.rows(expectedAuthors), "\(done.last ?? "")")
            let names = try store.rows("SELECT ZBY, ZSHOUT FROM ZBOOK WHERE ZAUTHOR = 1 LIMIT 1")
            #expect(names == (count == 0 ? ["'Zoë' 'ZOË'"] : count < 6 ? names : ["'Ægir' 'ÆGIR'"]))
        }
        let store = try StagedStore(model, Self.people)
        #expect(try store.rows("SELECT ZPLAIN FROM ZPERSON WHERE Z_PK < 3") == ["'zoe'", "'emile'"])
        #expect(try store.rows("SELECT count(*) FROM ZBOOK WHERE ZSAVED > 600000000") == ["5"])
    }

    /// As Core Data's debugging output shows it (fatbobman.com, "How to use Derived and Transient Properties").
    @Test func createsTheSameTimestampTriggerAsCoreData() throws {
        let layout = StoreLayout(
            try model("<entity name='Item'>\(Self.derived("update", "Date", by: "now()"))</entity>"))
        let triggers = layout.derivedAttributeTriggers.flatMap(\.triggers)
        let update = try #require(triggers.first { $0.name == "Z_DA_ZITEM_Item_update_UPDATE" })
        #expect(
            update.creation
                == "CREATE TRIGGER Z_DA_ZITEM_Item_update_UPDATE AFTER UPDATE OF Z_OPT ON ZITEM FOR EACH ROW "
                + "BEGIN UPDATE ZITEM SET ZUPDATE = NSCoreDataNow() WHERE Z_PK = NEW.Z_PK; "
                + "SELECT NSCoreDataDATriggerUpdatedAffectedObjectValue('ZITEM', Z_ENT, Z_PK, 'update', ZUPDATE) FROM ZITEM "
                + "WHERE Z_PK = NEW.Z_PK; END")
    }

    @Test func computesNewAttributes() throws {
        let store = try StagedStore(Self.library([], []), Self.people)
        let target = try model(Self.library(Self.authorAttributes, Self.bookAttributes))
        #expect(try store.migrate(to: target) == [])
        #expect(try store.rows(authors) == store.rows(expectedAuthors))
        #expect(
            try store.rows(books) == [
                "1 'Zoë' 'ZOË'", "2 'Zoë' 'ZOË'", "3 'Zoë' 'ZOË'", "4 'Émile' 'ÉMILE'", "5 NULL NULL",
            ])
        #expect(try store.rows("SELECT ZTWIN FROM ZPERSON WHERE Z_PK = 3") == ["NULL"])
        #expect(try store.rows("SELECT count(*) FROM ZBOOK WHERE ZSAVED > 600000000") == ["5"])
        #expect(try store.differences(from: target) == [])
    }

    /// A timestamp stays, and a changed derivation is recomputed. In a tree, each node counts its own children.
    @Test func recomputesChangedDerivations() throws {
        let tree = { (expression: String, more: String) in
            "<entity name='Node'>" + Self.derived("n", "Integer 64", by: expression)
                + Self.derived("saved", "Date", by: "now()")
                + "<attribute name='size' optional='YES' attributeType='Integer 64'/>\(more)"
                + Self.relationship("parent", to: "Node", inverse: "children")
                + Self.relationship("children", to: "Node", inverse: "parent", many: true) + "</entity>"
        }
        let rows = [
            "INSERT INTO ZNODE (Z_PK, Z_ENT, Z_OPT, ZSIZE, ZPARENT) VALUES (1, 1, 1, 5, NULL), (2, 1, 1, 6, 1), "
                + "(3, 1, 1, 8, 1)", "UPDATE ZNODE SET ZSAVED = 7",
        ]
        let store = try StagedStore(tree("children.@count", ""), rows)
        #expect(try store.rows("SELECT ZN FROM ZNODE") == ["2", "0", "0"])
        try store.migrate(to: tree("sum:(children.size)", ""))
        #expect(try store.rows("SELECT ZN, ZSAVED FROM ZNODE") == ["14 7", "0 7", "0 7"])
        let other = try StagedStore(tree("children.@count", ""), rows)
        let more = "<attribute name='more' optional='YES' attributeType='String'/>"
        #expect(
            try other.migrate(to: tree("children.@avg.size", more)).contains { $0.contains("Node.n is derived as") })
        #expect(try other.rows("SELECT ZN, ZSAVED FROM ZNODE") == ["NULL 7", "NULL 7", "NULL 7"])
    }

    /// The counted objects are removed with their entity.
    @Test func recomputesCountsOfRemovedObjects() throws {
        let old = Self.library(Self.authorAttributes, [], "<entity name='Essay' parentEntity='Book'/>")
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 4, 1, 'Zoë')",
                "INSERT INTO ZBOOK (Z_PK, Z_ENT, Z_OPT, ZWORDS, ZAUTHOR) VALUES (1, 1, 1, 10, 1), (2, 2, 1, 20, 1)",
            ])
        #expect(try store.rows("SELECT ZAMOUNT, ZWORDS, ZLONGEST FROM ZPERSON") == ["2 30 20"])
        try store.migrate(to: Self.library(Self.authorAttributes, []))
        #expect(try store.rows("SELECT ZAMOUNT, ZWORDS, ZLONGEST FROM ZPERSON") == ["1 10 10"])
    }

    @Test(arguments: ["avg:(books.words)", "books.pages.@count", "random()", "add:(name, name)", "books", "nothing"])
    func createsNoTriggersForUnsupportedDerivations(_ expression: String) throws {
        let layout = StoreLayout(try model(Self.library([Self.derived("x", "Integer 64", by: expression)], [])))
        #expect(layout.derivedAttributeTriggers.isEmpty)
        #expect(layout.unsupportedDerivations == ["Author.x"])
    }
}
