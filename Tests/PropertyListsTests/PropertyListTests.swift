import TestSupport
import Testing
import XMLDocuments

@testable import PropertyLists

@Suite struct PropertyListTests {
    @Test func readsBothFormats() throws {
        let xml = """
            <?xml version="1.0" encoding="UTF-8"?>
            <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
            <plist version="1.0"><dict>
            <key>text</key><string>a &amp; é</string><key>number</key><integer>-5</integer>
            <key>real</key><real>0.5</real><key>yes</key><true/><key>no</key><false/>
            <key>bytes</key><data>AAEC
            Aw==</data><key>when</key><date>2001-01-02T00:00:00Z</date>
            <key>list</key><array><integer>1</integer><string>two</string></array>
            <key>reference</key><dict><key>CF$UID</key><integer>7</integer></dict>
            </dict></plist>
            """
        let expected = PropertyListValue.dictionary([
            "text": .string("a & é"), "number": .integer(-5), "real": .real(0.5), "yes": .boolean(true),
            "no": .boolean(false), "bytes": .data([0, 1, 2, 3]), "when": .date(86400),
            "list": .array([.integer(1), .string("two")]), "reference": .uid(7),
        ])
        #expect(try PropertyListValue(parsing: Array(xml.utf8)) == expected)
        #expect(
            try PropertyListValue(
                parsing: python(
                    """
                    import plistlib, datetime, sys
                    sys.stdout.buffer.write(plistlib.dumps({
                        'text': 'a & é', 'number': -5, 'real': 0.5, 'yes': True, 'no': False,
                        'bytes': b'\\0\\1\\2\\3', 'when': datetime.datetime(2001, 1, 2), 'list': [1, 'two'],
                        'reference': plistlib.UID(7)}, fmt=plistlib.FMT_BINARY))
                    """)) == expected)
    }

    /// Numbers beyond `Int64.max` take 16 bytes with an empty upper half (CFBinaryPList.c).
    @Test func readsAndWritesNumbersBeyondInt64() throws {
        let binary = try python(
            """
            import plistlib, sys
            sys.stdout.buffer.write(plistlib.dumps(
                [2**63, 2**64 - 1, 2**63 - 1, -2**63], fmt=plistlib.FMT_BINARY))
            """)
        let value = PropertyListValue.array([
            .unsigned(1 << 63), .unsigned(.max), .integer(.max), .integer(.min),
        ])
        #expect(try PropertyListValue(parsing: binary) == value)
        #expect(try PropertyListValue(parsing: BinaryPropertyListWriter.bytes(of: value)) == value)
        let text = "<plist><array><integer>9223372036854775808</integer></array></plist>"
        #expect(try PropertyListValue(parsing: Array(text.utf8)) == .array([.unsigned(1 << 63)]))
    }

    @Test(arguments: [
        ("<plist><string>x</array></plist>", 1), ("<plist>\n<dict><key>a</key></dict></plist>", 2),
        ("<plist>\n\n<integer>many</integer></plist>", 3), ("<plist/>", 1), ("<model/>", 1),
        ("<plist><data>%%%</data><string/></plist>", 1), ("<plist>\n<data>AA!!EC</data></plist>", 2),
        ("<plist>\n<string>a<b/>c</string></plist>", 2), ("<plist><dict>\n\n<key>a</key>x<true/></dict></plist>", 3),
        ("<plist>\n<array>,<true/></array></plist>", 2), ("<plist>\n<true>no</true></plist>", 2),
        ("<plist>\n<real>1e400</real></plist>", 2), ("x<plist><true/></plist>", 1), ("<plist>\nx<true/></plist>", 2),
        ("<plist><date>today</date></plist>", 1), ("plain text", 1),
    ])
    func refusesDamagedXML(_ text: String, _ line: Int) {
        let error = #expect(throws: PropertyListError.self) { try PropertyListValue(parsing: Array(text.utf8)) }
        #expect(error?.line == line)
    }

    /// Damages every byte of a list in turn and truncates it to every length. The result is an error or another value,
    /// no trap.
    @Test func survivesDamagedBinary() throws {
        let intact = try python(
            """
            import plistlib, sys
            sys.stdout.buffer.write(plistlib.dumps(
                {'a': [1, 2.5, 'text', 'é', b'data', True, {'b': plistlib.UID(3)}], 'long': list(range(20))},
                fmt=plistlib.FMT_BINARY))
            """)
        var refused = 0
        for index in intact.indices {
            for value: UInt8 in [0x00, 0x0F, 0x7F, 0xAF, 0xDF, 0xFF] {
                var bytes = intact
                bytes[index] = value
                if (try? PropertyListValue(parsing: bytes)) == nil { refused += 1 }
            }
            if (try? PropertyListValue(parsing: Array(intact[..<index]))) == nil { refused += 1 }
        }
        #expect(refused > intact.count)
    }

    /// Forty arrays that each contain the next one twice, and an array that contains itself.
    @Test func refusesListsThatExpandWithoutBound() throws {
        let doubled = try python(
            """
            import struct, sys
            objects = [b'\\xA1\\x01', b'\\x51x'] + [b'\\xA2' + bytes([i, i]) for i in [0] + list(range(2, 41))]
            out, offsets = b'bplist00', []
            for one in objects:
                offsets.append(len(out)); out += one
            table = len(out)
            out += b''.join(struct.pack('>H', o) for o in offsets)
            out += b'\\0' * 6 + bytes([2, 1]) + struct.pack('>QQQ', len(objects), len(objects) - 1, table)
            sys.stdout.buffer.write(out)
            """)
        let error = #expect(throws: PropertyListError.self) { try PropertyListValue(parsing: doubled) }
        #expect(error?.message.contains("expands to") == true, "\(error?.message ?? "")")

        var circle = Array("bplist00".utf8) + [0xA1, 0x00, 8]
        circle += [0, 0, 0, 0, 0, 0, 1, 1] + [0, 0, 0, 0, 0, 0, 0, 1] + [UInt8](repeating: 0, count: 8)
        circle += [0, 0, 0, 0, 0, 0, 0, 10]
        let endless = #expect(throws: PropertyListError.self) { try PropertyListValue(parsing: circle) }
        #expect(endless?.message.contains("nested") == true)
    }

    /// Returns a list of arrays nested to `depth`, in both formats. The innermost array is empty.
    private static func nested(_ depth: Int) -> [[UInt8]] {
        let value = (1..<depth).reduce(PropertyListValue.array([])) { value, _ in .array([value]) }
        let open = String(repeating: "<array>", count: depth)
        let close = String(repeating: "</array>", count: depth)
        return [BinaryPropertyListWriter.bytes(of: value), Array("<plist>\(open)\(close)</plist>".utf8)]
    }

    @Test func limitsTheNesting() throws {
        // The element <plist> is a level too.
        for list in Self.nested(PropertyListValue.maximumDepth - 1) {
            #expect(try PropertyListValue(parsing: list).array?.count == 1)
        }
        for depth in [PropertyListValue.maximumDepth + 1, 1_000] {
            for list in Self.nested(depth) {
                let error = #expect(throws: PropertyListError.self) { try PropertyListValue(parsing: list) }
                #expect(error?.message.contains("nested") == true)
            }
        }
    }

    @Test func limitsTheSize() {
        for start in ["bplist00", "<plist>"] {
            let list = Array(start.utf8) + [UInt8](repeating: 0x20, count: PropertyListValue.maximumSize)
            let error = #expect(throws: PropertyListError.self) { try PropertyListValue(parsing: list) }
            #expect(error?.message.contains("larger than") == true)
        }
    }
}
