import Testing

@testable import PropertyLists

@Suite struct MarkupReaderTests {
    private func read(_ text: String) throws(MarkupError) -> MarkupElement { try MarkupReader.read(Array(text.utf8)) }

    @Test func readsElementsAttributesAndText() throws {
        let root = try read(
            """
            <?xml version="1.0" encoding="UTF-8" standalone="yes"?>
            <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
            <!-- <not> read -->
            <a one='1' two = "&lt;&amp;&#65;&#x1F600;&quot;
            end">
                text &gt; <![CDATA[<raw> &amp;]]>
                <b/><c x="é"></c>
            </a>

            """)
        #expect(root.name == "a")
        #expect(root.line == 4)
        #expect(root["one"] == "1")
        #expect(root["two"] == "<&A😀\" end")
        #expect(root["three"] == nil)
        #expect(root.text.trimmed.hasPrefix("text > <raw> &amp;"))
        #expect(root.children.map(\.name) == ["b", "c"])
        #expect(root.children.map(\.line) == [7, 7])
        #expect(root.children[1]["x"] == "é")
    }

    @Test(arguments: [
        ("", 1, "no element"), ("\n\n", 3, "no element"), ("text", 1, "text outside"), ("<a>\n<b>\n</a>", 3, "closes"),
        ("<a>\n", 2, "not closed"), ("<a></a>\n<b/>", 2, "follows"), ("<a x=1/>", 1, "quotation"),
        ("<a x='1' x='2'/>", 1, "twice"), ("<a x='1'y='2'/>", 1, "white space"), ("<a x/>", 1, "no value"),
        ("<a x='<'/>", 1, "“<”"), ("<a>&nbsp;</a>", 1, "&nbsp;"), ("<a>& b</a>", 1, "reference"),
        ("<a>&#0;</a>", 1, "reference"), ("<a>\u{1}</a>", 1, "control"), ("<1/>", 1, "name"), ("<a", 1, "document"),
        ("</a>", 1, "not opened"), ("<!-- <a/>", 1, "comment"), ("<a><![CDATA[ </a>", 1, "CDATA"),
        ("<?xml <a/>", 1, "processing"), ("<!DOCTYPE a", 1, "document type"), ("<a/><!DOCTYPE a>", 1, "wrong place"),
    ])
    func refusesMalformedDocuments(_ text: String, _ line: Int, _ word: String) {
        let error = #expect(throws: MarkupError.self) { try read(text) }
        #expect(error?.line == line, "\(text)")
        #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
    }

    /// Entities that expand exponentially or refer to a local file.
    @Test(arguments: [
        "<!DOCTYPE m [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><m>&b;</m>",
        "<!DOCTYPE m [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><m>&x;</m>",
        "<!DOCTYPE m SYSTEM 'http://example.com/x.dtd' [<!ENTITY % x SYSTEM 'file:///etc/passwd'> %x;]><m/>",
    ])
    func refusesEntityDeclarations(_ text: String) {
        let error = #expect(throws: MarkupError.self) { try read(text) }
        #expect(error?.message.contains("declares entities") == true)
    }

    @Test func refusesOtherEncodings() {
        #expect(throws: MarkupError.self) { try MarkupReader.read([0xFF, 0xFE, 0x3C, 0, 0x61, 0]) }
        #expect(throws: MarkupError.self) { try MarkupReader.read(Array("<a>".utf8) + [0xC3, 0x28]) }
    }

    @Test func refusesDocumentsBeyondTheLimits() throws {
        let deep = String(repeating: "<a>", count: 100_000)
        #expect(throws: MarkupError.self) { try read(deep) }
        let fine = String(repeating: "<a>", count: 64) + String(repeating: "</a>", count: 64)
        #expect(try read(fine).name == "a")
        let attributes = (0..<5000).map { "x\($0)=''" }.joined(separator: " ")
        #expect(throws: MarkupError.self) { try read("<a \(attributes)/>") }
        let many = "<a>" + String(repeating: "<b/>", count: 1_000_001) + "</a>"
        #expect(throws: MarkupError.self) { try read(many) }
    }
}
