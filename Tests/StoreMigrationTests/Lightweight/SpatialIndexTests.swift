import Testing

/// Fetch indexes of type R-tree: a virtual table beside the entity's, which migrations carry along.
@Suite struct SpatialIndexTests {
    private func place(_ more: String = "", latitude: String = "latitude", index: Bool = true) -> String {
        "<entity name='Place' \(index ? "" : "versionHashModifier='2'")>"
            + "<attribute name='\(latitude)' elementID='latitude' optional='YES' attributeType='Double'/>"
            + "<attribute name='longitude' optional='YES' attributeType='Double'/>\(more)"
            + (index
                ? "<fetchIndex name='byPlace'><fetchIndexElement property='\(latitude)' type='RTree'/>"
                    + "<fetchIndexElement property='longitude' type='RTree'/></fetchIndex>" : "") + "</entity>"
    }

    private let rows = [
        "INSERT INTO ZPLACE (Z_PK, Z_ENT, Z_OPT, ZLATITUDE, ZLONGITUDE) VALUES (1, 1, 1, 10.5, 20), (2, 1, 1, 11, 21)",
        "UPDATE ZPLACE SET ZLATITUDE = 12 WHERE Z_PK = 2",
        "INSERT INTO ZPLACE (Z_PK, Z_ENT, Z_OPT, ZLATITUDE, ZLONGITUDE) VALUES (3, 1, 1, 1, 1)",
        "DELETE FROM ZPLACE WHERE Z_PK = 3",
    ]
    private let content = "SELECT * FROM Z_Place_byPlace ORDER BY 1"

    @Test func theIndexFollowsItsTable() throws {
        let store = try StagedStore(place(), rows)
        #expect(try store.rows(content) == ["1 10.5 10.5 20.0 20.0", "2 12.0 12.0 21.0 21.0"])
    }

    @Test(arguments: ["latitude", "north"]) func isRebuiltWithItsTable(_ name: String) throws {
        let other = "<entity name='A'><attribute name='x' optional='YES' attributeType='String'/></entity>"
        let store = try StagedStore(place(), rows)
        try store.migrate(
            to: place("<attribute name='name' optional='YES' attributeType='String'/>", latitude: name) + other)
        #expect(try store.rows(content) == ["1 10.5 10.5 20.0 20.0", "2 12.0 12.0 21.0 21.0"])
        let triggers = "SELECT name FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1"
        #expect(
            try store.rows(triggers) == [
                "'Z_Place_byPlace_DELETE'", "'Z_Place_byPlace_INSERT'", "'Z_Place_byPlace_UPDATE'",
            ])
    }

    /// An object that lacks one of the values is not in the index.
    @Test func isAddedAndRemoved() throws {
        let store = try StagedStore(
            place(index: false),
            [
                "INSERT INTO ZPLACE (Z_PK, Z_ENT, Z_OPT, ZLATITUDE, ZLONGITUDE) VALUES (1, 1, 1, 5, 6), (2, 1, 1, 7, NULL)"
            ])
        try store.migrate(to: place())
        #expect(try store.rows(content) == ["1 5.0 5.0 6.0 6.0"])
        let again = try StagedStore(place(), rows)
        try again.migrate(to: place(index: false))
        #expect(try again.rows("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'Z\\_Place%' ESCAPE '\\'") == ["0"])
        #expect(try again.rows("SELECT count(*) FROM ZPLACE") == ["2"])
    }
}
