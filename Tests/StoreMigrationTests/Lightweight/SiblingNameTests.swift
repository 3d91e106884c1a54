import Testing

@testable import MappingModels

/// An attribute keeps its values whatever its siblings' names are, and however they change.
struct SiblingNameTests {
    /// A sibling's name, and an attribute's name that starts with it or differs only in its signs.
    private static let names = [
        ("image", "image_url"), ("a", "a_"), ("a", "a_b_c"), ("a_b", "a_b_c"), ("é", "é_x"), ("select", "select_from"),
        ("x", "x1"), ("x1", "x"), ("_x", "_x_"),
    ]

    private enum Change: CaseIterable {
        case added, removed, renamed, becomesTransient, becomesExternal, narrowed, getsDefault, becomesComposite
    }

    private func attribute(_ name: String, _ type: String, _ more: String = "optional='YES'") -> String {
        "<attribute name='\(name)' attributeType='\(type)' \(more)/>"
    }

    /// Returns the sibling before and after the change.
    private func sibling(_ name: String, _ change: Change) -> (old: String, new: String, composite: String) {
        let text = attribute(name, "String")
        switch change {
        case .added: return ("", text, "")
        case .removed: return (text, "", "")
        case .renamed: return (text, attribute("other", "String", "optional='YES' elementID='\(name)'"), "")
        case .becomesTransient: return (text, attribute(name, "String", "optional='YES' transient='YES'"), "")
        case .becomesExternal:
            return (
                attribute(name, "Binary"),
                attribute(name, "Binary", "optional='YES' allowsExternalBinaryDataStorage='YES'"), ""
            )
        case .narrowed: return (attribute(name, "Double"), attribute(name, "Integer 16"), "")
        case .getsDefault:
            return (attribute(name, "String"), attribute(name, "String", "defaultValueString='d'"), "")
        case .becomesComposite:
            return (
                "", "<attribute name='\(name)' optional='YES' attributeType='Composite' elementName='C'/>",
                "<composite name='C'>" + attribute("b", "String") + attribute("url", "String") + "</composite>"
            )
        }
    }

    @Test(arguments: names) func anAttributeKeepsItsValues(_ names: (sibling: String, kept: String)) throws {
        for change in Change.allCases {
            let (old, new, composite) = sibling(names.sibling, change)
            for (type, value) in [("String", "'it''s'"), ("Double", "1.5"), ("Binary", "x'02FF'")] {
                let kept = attribute(names.kept, type)
                let column = "\"Z\(names.kept.uppercased())\""
                let store = try StagedStore(
                    entity(old + kept), ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, \(column)) VALUES (7, 1, 3, \(value))"])
                let target = try model(entity(new + kept) + composite)
                try store.migrate(to: target)
                #expect(try store.differences(from: target) == [], "\(change)")
                #expect(
                    try store.rows("SELECT Z_PK, Z_OPT, quote(\(column)) FROM ZA WHERE \(column) IS \(value)").count
                        == 1,
                    "\(change) of \(names.sibling) beside \(names.kept)")
            }
        }
    }

    @Test(arguments: names) func aNewAttributeHasItsDefault(_ names: (sibling: String, kept: String)) throws {
        let old = attribute(names.sibling, "String")
        let store = try StagedStore(entity(old), ["INSERT INTO ZA VALUES (1, 1, 1, 's')"])
        try store.migrate(
            to: entity(old + attribute(names.kept, "String", "optional='YES' defaultValueString='d'")))
        #expect(
            try store.rows(
                "SELECT \"Z\(names.sibling.uppercased())\", \"Z\(names.kept.uppercased())\" FROM ZA") == ["'s' 'd'"])
    }

    /// The element's path and the attribute's name are equal once they are joined.
    @Test func distinguishesACompositesElementFromAnAttribute() throws {
        let composite = "<composite name='C'>" + attribute("b", "String") + attribute("c", "String") + "</composite>"
        let place = "<attribute name='a' optional='YES' attributeType='Composite' elementName='C'/>"
        let plain = attribute("a_b", "String")
        let rows = ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZB, ZC, ZA_B) VALUES (1, 1, 1, 'b', 'c', 'plain')"]
        for new in [
            place + plain + attribute("z", "String"),
            place.replacing("name='a'", with: "name='q' elementID='a'") + plain,
        ] {
            let store = try StagedStore(entity(place + plain) + composite, rows)
            try store.migrate(to: entity(new) + composite)
            #expect(try store.rows("SELECT ZB, ZC, ZA_B FROM ZA") == ["'b' 'c' 'plain'"])
        }
    }

    /// Elements are paired, converted and filled like attributes.
    @Test(arguments: [
        ("Double", "optional='YES'", "51.375", "Integer 64", "name='n' optional='YES'", "51"),
        ("String", "optional='YES'", "'x'", "String", "name='m' optional='YES' elementID='n'", "'x'"),
        (
            "Binary", "optional='YES'", "x'02AABB'", "Binary",
            "name='n' optional='YES' allowsExternalBinaryDataStorage='YES'", "x'0102aabb'"
        ),
        ("String", "optional='YES'", "NULL", "String", "name='n' defaultValueString='d'", "'d'"),
        ("String", "optional='YES'", "'x'", "String", "name='new' optional='YES' defaultValueString='d'", "'d'"),
    ])
    func migratesAnElementLikeAnAttribute(
        _ type: String, _ more: String, _ value: String, _ newType: String, _ changed: String, _ expected: String
    ) throws {
        let place = "<attribute name='p' optional='YES' attributeType='Composite' elementName='C'/>"
        let old = entity(place) + "<composite name='C'>\(attribute("n", type, more))</composite>"
        let element = "<attribute attributeType='\(newType)' \(changed)/>"
        let store = try StagedStore(old, ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZN) VALUES (1, 1, 1, \(value))"])
        let target = try model(entity(place) + "<composite name='C'>\(element)</composite>")
        try store.migrate(to: target)
        #expect(try store.differences(from: target) == [])
        let name = try #require(
            try store.rows("SELECT name FROM pragma_table_info('ZA') WHERE name NOT LIKE 'Z!_%' ESCAPE '!'").first)
        #expect(try store.rows("SELECT \(name.replacing("'", with: "")) FROM ZA") == [expected])
    }

    @Test func refusesToMoveAnExternalElementIntoTheStore() throws {
        let place = "<attribute name='p' optional='YES' attributeType='Composite' elementName='C'/>"
        func composite(_ more: String) -> String {
            entity(place) + "<composite name='C'>\(attribute("n", "Binary", "optional='YES' " + more))</composite>"
        }
        #expect(throws: MappingInferenceError.self) {
            try MappingModel.inferred(
                from: model(composite("allowsExternalBinaryDataStorage='YES'")), to: model(composite("")))
        }
    }

    /// Swift treats both forms as equal; SQLite doesn't.
    @Test func renamesAColumnToAnotherNormalForm() throws {
        let store = try StagedStore(
            entity(attribute("\u{E9}", "String")), ["INSERT INTO ZA VALUES (1, 1, 1, 'x')"])
        try store.migrate(
            to: entity(attribute("e\u{301}", "String", "optional='YES' elementID='\u{E9}'")))
        #expect(try store.rows("SELECT hex(name) FROM pragma_table_info('ZA') WHERE cid = 3") == ["'5A45CC81'"])
        #expect(try store.rows("SELECT \"ZE\u{301}\" FROM ZA") == ["'x'"])
    }
}
