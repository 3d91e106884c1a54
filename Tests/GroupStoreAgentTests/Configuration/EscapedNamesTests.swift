import Testing

@testable import GroupStoreAgent

@Suite struct EscapedNamesTests {
    @Test(arguments: [
        ["a"], ["a", "b"], ["weird, name"], [","], ["a\\"], ["a\\", "b"], ["\\,"], ["a\\b", "c,\\,d"], ["\\\\"],
    ])
    func roundTripsNames(_ names: [String]) { #expect(EscapedNames.names(EscapedNames.text(names)) == names) }

    @Test func parsesHandwrittenLists() {
        #expect(EscapedNames.names("ZNOTE,ZTAG") == ["ZNOTE", "ZTAG"])
        #expect(EscapedNames.names(#"weird\, name,b"#) == ["weird, name", "b"])
        #expect(EscapedNames.names(#"a\b"#) == [#"a\b"#])
        #expect(EscapedNames.names("a,,b") == ["a", "", "b"])
    }
}
