import Testing

@testable import GroupStoreAgent

@Suite struct NameListTests {
    @Test(arguments: [
        ["a"], ["a", "b"], ["weird, name"], [","], ["a\\"], ["a\\", "b"], ["\\,"], ["a\\b", "c,\\,d"], ["\\\\"],
    ])
    func namesComeBack(_ names: [String]) { #expect(NameList.names(NameList.text(names)) == names) }

    @Test func asAPersonWritesThem() {
        #expect(NameList.names("ZNOTE,ZTAG") == ["ZNOTE", "ZTAG"])
        #expect(NameList.names(#"weird\, name,b"#) == ["weird, name", "b"])
        #expect(NameList.names(#"a\b"#) == [#"a\b"#])
        #expect(NameList.names("a,,b") == ["a", "", "b"])
    }
}
