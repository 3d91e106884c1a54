import SQLiteFormat
import Testing

@Suite struct FileFormatTests {
    static let random: [UInt8] = {
        var state: UInt64 = 0x9E37_79B9_7F4A_7C15
        return (0..<4096).map { _ in
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return UInt8(truncatingIfNeeded: state >> 24)
        }
    }()

    static let header: [UInt8] = {
        var bytes = Array("SQLite format 3\0".utf8) + [UInt8](repeating: 0, count: 84)
        bytes.replaceSubrange(16..<20, with: [0x10, 0x00, 1, 1])
        return bytes
    }()

    static let cases: [([UInt8], FileFormat)] = [
        ([], .empty),
        (header, .sqlite3),
        (Array(header.prefix(60)), .damagedSQLite3),
        (Array("SQLite format 3\0".utf8) + [UInt8](repeating: 0xFF, count: 84), .damagedSQLite3),
        (Array("** This file contains an SQLite 2.1 database **\0".utf8), .sqlite2),
        ([0x37, 0x7F, 0x06, 0x82, 0, 0x2D, 0xE2, 0x18], .writeAheadLog),
        ([0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7, 0, 0], .rollbackJournal),
        (Array("bplist00".utf8) + [0xD4, 1, 2], .binaryPropertyList),
        (Array("<?xml version=\"1.0\"?>\n<!DOCTYPE database SYSTEM \"file:///x.dtd\">\n<database>".utf8), .coreDataXML),
        (Array("<?xml version=\"1.0\"?>\n<!DOCTYPE plist>\n<plist>".utf8), .text),
        (Array("id,title\n1,Grüße\n".utf8), .text),
        (Array("Grüß".utf8.dropLast()), .text),
        ([UInt8](repeating: 0, count: 4096), .zeros),
        ([0x1F, 0x8B, 8, 0], .compressed),
        ([0x7F, 0x45, 0x4C, 0x46] + [UInt8](repeating: 0, count: 508), .other),
        ([0], .zeros),
        ([0xFF], .other),
    ]

    @Test(arguments: cases) func detectsTheFormat(_ bytes: [UInt8], _ format: FileFormat) {
        #expect(FileFormat(firstBytes: bytes, size: Int64(bytes.count)) == format)
    }

    /// An XML store stays one in every encoding: what is wrong with it is for the XML parser to say.
    @Test(arguments: [
        "<database>", "<?xml version='1.0' encoding='ISO-8859-1'?><database>", "\n<!-- é < > -->\n<database >",
        "<?xml version='1.0'?><!DOCTYPE\ndatabase[]><database>",
    ])
    func detectsAnXMLStoreInEachEncoding(_ text: String) {
        let units = Array(text.utf16)
        let wide = { (bytes: (UInt16) -> [UInt8]) in units.flatMap(bytes) }
        let big = wide { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
        let little = wide { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
        let encoded: [[UInt8]] = [
            Array(text.utf8), [0xEF, 0xBB, 0xBF] + Array(text.utf8), units.map { UInt8($0) }, [0xFE, 0xFF] + big,
            [0xFF, 0xFE] + little, [0xFF, 0xFE, 0, 0] + little.chunked(by: 2).flatMap { $0 + [0, 0] },
        ]
        for bytes in encoded + (text.hasPrefix("<") ? [big, little] : []) {
            #expect(FileFormat(firstBytes: bytes, size: Int64(bytes.count)) == .coreDataXML, "\(bytes)")
        }
    }

    @Test(arguments: ["<databases>", "<html>\n<database>", "<!-- <database> -->", "database", "<?xml <database>"])
    func takesOtherTextForText(_ text: String) {
        #expect(FileFormat(firstBytes: Array(text.utf8), size: Int64(text.utf8.count)) == .text)
    }

    /// Nothing may be taken for text that was encrypted, only because it begins with `<` or a byte order mark.
    @Test(arguments: [[0x3C], [0xFF, 0xFE], [0xEF, 0xBB, 0xBF], [0, 0x3C]] as [[UInt8]])
    func randomPagesMayBeginLikeMarkup(_ start: [UInt8]) {
        let bytes = start + Self.random.dropFirst(start.count)
        #expect(FileFormat(firstBytes: bytes, size: 40960) == .encrypted)
    }

    @Test func treatsRandomPagesAsEncrypted() {
        let format = FileFormat(firstBytes: Self.random, size: 40960)
        #expect(format == .encrypted)
        #expect(format.mayBeOpaque)
        #expect(FileFormat(firstBytes: Array(Self.random.prefix(1024)), size: 1024) == .encrypted)
    }

    @Test func doesNotTreatOtherSizesAsEncrypted() {
        #expect(FileFormat(firstBytes: Self.random, size: 40961) == .other)
    }

    @Test func eachFormatHasItsOwnCode() {
        #expect(Set(FileFormat.allCases.map(\.code)).count == FileFormat.allCases.count)
    }
}

extension [UInt8] {
    fileprivate func chunked(by count: Int) -> [[UInt8]] {
        stride(from: 0, to: self.count, by: count).map { Array(self[$0..<$0 + count]) }
    }
}
