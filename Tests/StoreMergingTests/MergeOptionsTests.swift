import Testing

@testable import StoreMerging

struct MergeOptionsTests {
    @Test(arguments: [
        ("Note=uuid", "Note", ["uuid"]), ("Page=note,number", "Page", ["note", "number"]), ("Log=*", "Log", []),
        ("a=b=c", "a", ["b=c"]),
    ])
    func readsAKey(_ text: String, _ name: String, _ properties: [String]) throws {
        let key = try #require(MergeKey(text))
        #expect(key.name == name)
        #expect(key.properties == properties)
        #expect(key.text == text)
        #expect(key.comparesWholeObjects == properties.isEmpty)
    }

    @Test(arguments: ["", "Note", "=uuid", "Note=", "Note=a,", "Note=,a", "Note=a,a", "Note=*,a"])
    func refusesWhatIsNoKey(_ text: String) { #expect(MergeKey(text) == nil) }

    @Test(arguments: [
        ("group", MergePreference.group), ("legacy", .legacy), ("newer:modifiedAt", .newer("modifiedAt")),
    ])
    func readsAPreference(_ text: String, _ preference: MergePreference) {
        #expect(MergePreference(text) == preference)
        #expect(preference.text == text)
    }

    @Test(arguments: ["", "newer", "newer:", "Group", "older:a"])
    func refusesWhatIsNoPreference(_ text: String) { #expect(MergePreference(text) == nil) }
}
