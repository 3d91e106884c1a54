import Testing

@testable import XMLDocuments

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
        ("", 1, "no element"), ("\n\n", 3, "no element"), ("text", 1, "syntax error"),
        ("<a>\n<b>\n</a>", 3, "mismatched tag: <b> of line 2"), ("<a>\n", 2, "<a> of line 1 is not closed"),
        ("<a></a>\n<b/>", 2, "junk after document element"), ("<a></a>\ntext", 2, "junk after document element"),
        ("<a x=1/>", 1, "not well-formed"), ("<a\nx='1' x='2'/>", 2, "duplicate attribute"),
        ("<a x='1'y='2'/>", 1, "not well-formed"), ("<a x/>", 1, "not well-formed"),
        ("<a x='<'/>", 1, "not well-formed"),
        ("<a>\n&nbsp;</a>", 2, "undefined entity"), ("<a>& b</a>", 1, "not well-formed"),
        ("<a>&#0;</a>", 1, "invalid character number"), ("<a>&#xD800;</a>", 1, "invalid character number"),
        ("<a>&#xFFFE;</a>", 1, "invalid character number"), ("<a>\n\u{1}</a>", 2, "a character is invalid"),
        ("<a>\n\u{FFFE}</a>", 2, "a character is invalid"), ("<1/>", 1, "not well-formed"), ("<a", 1, "unclosed token"),
        ("</a>", 1, "not well-formed"), ("<!-- <a/>", 1, "unclosed token"),
        ("<a><!-- -- --></a>", 1, "not well-formed"),
        ("<a><![CDATA[ </a>", 1, "unclosed CDATA"), ("<a>]]></a>", 1, "not well-formed"),
        ("<?xml <a/>", 1, "unclosed token"),
        (" <?xml version='1.0'?><a/>", 1, "XML or text declaration not at start"), ("<!DOCTYPE a", 1, "no element"),
        ("<a/><!DOCTYPE a>", 1, "junk after document element"),
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

    /// A document type without entities is read, with its attributes' default values.
    @Test func readsADocumentTypeWithoutEntities() throws {
        let root = try read("<!DOCTYPE a [<!ATTLIST a x CDATA 'one' y NMTOKENS #IMPLIED>]><a y='  b   c '/>")
        #expect(root["x"] == "one")
        #expect(root["y"] == "b c")
    }

    /// With an external type, which isn't read, XML lets a parser leave out entities that it doesn't know.
    @Test(arguments: [
        "<!DOCTYPE a SYSTEM 'a.dtd'>\n<a>x&nbsp;y</a>", "<!DOCTYPE a SYSTEM 'a.dtd'>\n<a b='x&nbsp;y'/>",
        "<!DOCTYPE a SYSTEM 'a.dtd'>\n<a b='&amp;'><c d='&#65;&lt;&nbsp;'/></a>",
        "<?xml version='1.0' standalone='yes'?><!DOCTYPE a SYSTEM 'a.dtd'>\n<a b='x&nbsp;y'/>",
    ])
    func refusesReferencesToUnknownEntities(_ text: String) throws {
        for bytes in [Array(text.utf8), Self.bytes(of: text, "utf-16-le-sig")] {
            let error = #expect(throws: MarkupError.self) { try MarkupReader.read(bytes) }
            #expect(error?.line == 2)
        }
        let known = try read("<!DOCTYPE a SYSTEM 'a.dtd'><a b='&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#x10FFFF;☃&amp;'/>")
        #expect(known["b"] == "<>&\"'AB\u{10FFFF}☃&")
    }

    /// Section 2.11: a line ends in one LF, whatever the file has; a reference stays what it says. Section 3.3.3: white
    /// space in an attribute's value is spaces.
    @Test func normalizesEndsOfLines() throws {
        let root = try read("<a b='1\r\n2\r3\t4&#13;&#10;5'>\r\nx\ry&#13;\r\n<![CDATA[\r\n]]></a>")
        #expect(root["b"] == "1 2 3 4\r\n5")
        #expect(Array(root.text.unicodeScalars) == Array("\nx\ny\r\n\n".unicodeScalars))
        #expect(try read("<a>\r\n\r<b/></a>").children[0].line == 3)
    }

    static let word = "é ü 😀 Ж"

    /// The same document in many encodings, with and without a byte order mark.
    @Test(
        arguments: [
            (nil, "utf-8"), ("UTF-8", "utf-8"), ("utf-8", "utf-8-sig"), (nil, "utf-8-sig"), ("UTF-16", "utf-16-le-sig"),
            (nil, "utf-16-be-sig"), ("UTF-16", "utf-16-be-sig"), (nil, "utf-16-le"), ("UTF-16BE", "utf-16-be"),
            ("UTF-32", "utf-32-le-sig"), (nil, "utf-32-be"),
        ] as [(String?, String)])
    func readsUnicodesEncodings(_ declared: String?, _ encoding: String) throws {
        let declaration = declared.map { "<?xml version='1.0' encoding='\($0)'?>" } ?? "<?xml version='1.0'?>"
        let text = "\(declaration)\n<a b='\(Self.word)'>\(Self.word)</a>"
        let root = try MarkupReader.read(Self.bytes(of: text, encoding))
        #expect(root.text == Self.word)
        #expect(root["b"] == Self.word)
        #expect(root.line == 2)
    }

    private static func bytes(of text: String, _ encoding: String) -> [UInt8] {
        let marked = encoding.hasSuffix("-sig") ? "\u{FEFF}" + text : text
        let units: [(UInt32, Int)] =
            encoding.hasPrefix("utf-8")
            ? marked.utf8.map { (UInt32($0), 1) }
            : encoding.hasPrefix("utf-16")
                ? marked.utf16.map { (UInt32($0), 2) } : marked.unicodeScalars.map { ($0.value, 4) }
        return units.flatMap { unit, width in
            let little = (0..<width).map { UInt8(truncatingIfNeeded: unit >> (8 * UInt32($0))) }
            return encoding.contains("-be") ? little.reversed() : little
        }
    }

    @Test(
        arguments: [
            ("ISO-8859-1", 0xE9, "é"), ("iso-8859-15", 0xA4, "€"), ("windows-1252", 0x80, "€"),
            ("windows-1251", 0xC6, "Ж"),
            ("KOI8-R", 0xF6, "Ж"), ("macintosh", 0x8E, "é"), ("latin1", 0xE9, "é"), ("IBM850", 0x82, "é"),
        ] as [(String, UInt8, String)])
    func readsOneByteEncodings(_ name: String, _ byte: UInt8, _ character: String) throws {
        let start = Array("<?xml version='1.0' encoding='\(name)'?>\n<a b='".utf8)
        let root = try MarkupReader.read(start + [byte] + Array("'>".utf8) + [byte] + Array("\r\n</a>".utf8))
        #expect(root.text == character + "\n")
        #expect(root["b"] == character)
        #expect(root.line == 2)
    }

    @Test func readsEncodingsOfSeveralBytes() throws {
        let root = try MarkupReader.read(
            Array("<?xml version='1.0' encoding='EUC-JP'?><a>".utf8) + [0xC6, 0xFC, 0xCB, 0xDC] + Array("</a>".utf8))
        #expect(root.text == "日本")
    }

    @Test(
        arguments: [
            // Bytes that aren't in the encoding that is declared, or in UTF-8.
            (Array("<a>\n".utf8) + [0xC3, 0x28] + Array("</a>".utf8), 2, "encoding"),
            (Array("<a>\n".utf8) + [0xFF] + Array("</a>".utf8), 2, "encoding"),
            (Array("<a>\n".utf8) + [0xED, 0xA0, 0x80] + Array("</a>".utf8), 2, "encoding"),
            (Array("<?xml version='1.0' encoding='US-ASCII'?>\n<a>é</a>".utf8), 2, "encoding"),
            (
                Array("<?xml version='1.0' encoding='windows-1252'?>\n<a>".utf8) + [0x81] + Array("</a>".utf8), 2,
                "windows-1252"
            ),
            (Array("<?xml version='1.0' encoding='x-unknown'?><a/>".utf8), 1, "“x-unknown” is unknown"),
            (
                Array("<?xml version='1.0' encoding='Shift_JIS'?><a/>".utf8), 1,
                "“Shift_JIS” isn't an extension of ASCII"
            ),
            (Array("<?xml version='1.0' encoding='UTF-7'?><a/>".utf8), 1, "“UTF-7” isn't an extension of ASCII"),
            (Array("<?xml version='1.0' encoding='EBCDIC-US'?><a/>".utf8), 1, "isn't an extension of ASCII"),
            (
                Array("<?xml version='1.0' encoding='UTF-16'?><a/>".utf8), 1,
                "encoding specified in XML declaration is incorrect"
            ),
            (Array("<?xml version='1.0' encoding='UTF-8//IGNORE'?><a/>".utf8), 1, "XML declaration not well-formed"),
            (bytes(of: "<?xml version='1.0' encoding='UTF-8'?><a/>", "utf-16-le-sig"), 1, "is incorrect"),
            (bytes(of: "<a>\n</a>", "utf-16-le-sig").dropLast(), 2, ""),
            (bytes(of: "<a>\n\u{FFFD}</a>", "utf-16-le-sig").map { $0 == 0xFD ? 0xFF : $0 }, 2, "encoding"),
            ([0xFF, 0xFE, 0x3C, 0, 0x61, 0], 1, ""),
        ] as [([UInt8], Int, String)])
    func refusesBytesOfAnotherEncoding(_ bytes: [UInt8], _ line: Int, _ word: String) {
        let error = #expect(throws: MarkupError.self) { try MarkupReader.read(bytes) }
        #expect(error?.line == line)
        #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
    }

    @Test func namesTheLineOfStrayText() throws {
        let root = try read("<a>\n<b/>\n<c> x\n</c>\n  stray <d/>\n</a>")
        #expect(root.textLine == 5)
        #expect(root.children[1].textLine == 3)
        #expect(root.children[0].textLine == nil)
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

    @Test(
        arguments: [
            ("1.5", 1.5), ("-1e3", -1000), ("inf", .infinity), ("-Infinity", -.infinity), ("0", 0), ("-0.000", 0),
            ("0e999", 0),
            ("1e400", nil), ("-1e400", nil), ("1e-400", nil), ("0.0001e-400", nil), ("0x10", nil), ("1,5", nil),
            ("", nil),
            ("5e-324", .leastNonzeroMagnitude), ("1.7976931348623157e308", 1.7976931348623157e308),
        ] as [(String, Double?)])
    func readsNumbersThatFit(_ text: String, _ number: Double?) {
        #expect(text.number(as: Double.self) == number)
    }

    @Test(arguments: [("3.5", 3.5), ("1e39", nil), ("1e-50", nil), ("inf", .infinity)] as [(String, Float?)])
    func readsSmallNumbersThatFit(_ text: String, _ number: Float?) { #expect(text.number(as: Float.self) == number) }
}
