/// A writer of binary property lists (CFBinaryPList.c, opensource.apple.com). It stores each distinct string once.
///
/// Hand-written because FoundationEssentials writes property lists only through `Codable`, which has no type for a
/// keyed archive's references.
package struct BinaryPropertyListWriter {
    private var objects: [[UInt8]] = []
    /// The object numbers of each collection's elements. They are written last, when the size of a reference is known.
    private var references: [[Int]] = []
    private var strings: [String: Int] = [:]

    private init() {}

    /// Returns the list's bytes.
    package static func bytes(of value: PropertyListValue) -> [UInt8] {
        var writer = BinaryPropertyListWriter()
        _ = writer.add(value)
        return writer.file()
    }

    private mutating func append(_ marker: [UInt8], _ elements: [Int] = []) -> Int {
        objects.append(marker)
        references.append(elements)
        return objects.count - 1
    }

    private mutating func add(_ value: PropertyListValue) -> Int {
        switch value {
        case .boolean(let truth): return append([truth ? 9 : 8])
        case .integer(let number): return append(Self.integer(number))
        case .unsigned(let number):
            let zeros = [UInt8](repeating: 0, count: 8)
            return append(
                number > UInt64(Int64.max) ? [0x14] + zeros + Self.bigEndian(number) : Self.integer(Int64(number)))
        case .real(let number): return append([0x23] + Self.bigEndian(number.bitPattern))
        case .date(let seconds): return append([0x33] + Self.bigEndian(seconds.bitPattern))
        case .data(let bytes): return append(Self.marker(0x40, bytes.count) + bytes)
        case .string(let text):
            if let known = strings[text] { return known }
            let number = append(Self.text(text))
            strings[text] = number
            return number
        case .uid(let number):
            let bytes = Self.shortest(UInt64(number))
            return append([0x80 | UInt8(bytes.count - 1)] + bytes)
        case .array(let elements):
            // A collection precedes its elements, so the root is the first object.
            let number = append(Self.marker(0xA0, elements.count))
            references[number] = elements.map { add($0) }
            return number
        case .dictionary(let members):
            let number = append(Self.marker(0xD0, members.count))
            let sorted = members.sorted { $0.key.utf16.lexicographicallyPrecedes($1.key.utf16) }
            references[number] = sorted.map { add(.string($0.key)) } + sorted.map { add($0.value) }
            return number
        }
    }

    private func file() -> [UInt8] {
        let referenceSize = Self.size(for: UInt64(objects.count))
        var file = Array("bplist00".utf8)
        var offsets: [Int] = []
        for (object, elements) in zip(objects, references) {
            offsets.append(file.count)
            file += object
            for element in elements { file += Self.bigEndian(UInt64(element)).suffix(referenceSize) }
        }
        let table = file.count
        let offsetSize = Self.size(for: UInt64(table))
        for offset in offsets { file += Self.bigEndian(UInt64(offset)).suffix(offsetSize) }
        file += [0, 0, 0, 0, 0, 0, UInt8(offsetSize), UInt8(referenceSize)]
        return file + Self.bigEndian(UInt64(objects.count)) + Self.bigEndian(0) + Self.bigEndian(UInt64(table))
    }

    private static func text(_ text: String) -> [UInt8] {
        let isASCII = text.utf8.allSatisfy { $0 < 0x80 }
        if isASCII { return marker(0x50, text.utf8.count) + Array(text.utf8) }
        let units = Array(text.utf16)
        return marker(0x60, units.count) + units.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
    }

    private static func marker(_ kind: UInt8, _ count: Int) -> [UInt8] {
        count < 15 ? [kind | UInt8(count)] : [kind | 15] + integer(Int64(count))
    }

    /// Returns an integer object. Negative numbers take 8 bytes.
    private static func integer(_ number: Int64) -> [UInt8] {
        let bytes = number < 0 ? bigEndian(UInt64(bitPattern: number)) : shortest(UInt64(number))
        return [0x10 | UInt8(bytes.count.trailingZeroBitCount)] + bytes
    }

    private static func size(for number: UInt64) -> Int {
        switch number {
        case ..<0x100: 1
        case ..<0x1_0000: 2
        case ..<0x1_0000_0000: 4
        default: 8
        }
    }

    private static func shortest(_ number: UInt64) -> [UInt8] { bigEndian(number).suffix(size(for: number)) }

    private static func bigEndian(_ number: UInt64) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { Array($0) }
    }
}
