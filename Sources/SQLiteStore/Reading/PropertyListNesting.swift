/// A limit on a property list's nesting. Foundation decodes by recursion, so malicious or damaged bytes could exhaust
/// the stack.
package enum PropertyListNesting {
    /// Core Data's metadata nests three levels; an app's own values add a few more.
    private static let maxDepth = 64
    /// An object with several references counts once for each.
    private static let maxObjects = 1_000_000

    /// True if the bytes are a binary or XML property list within the limit. They may still be malformed.
    package static func isBounded(_ bytes: [UInt8]) -> Bool {
        if bytes.starts(with: Array("bplist00".utf8)) { return BinaryPropertyList(bytes)?.isBounded ?? false }
        guard bytes.first == UInt8(ascii: "<") else { return false }
        return isBoundedXML(bytes)
    }

    /// Counts the open elements. Comments and text can only make the result stricter.
    private static func isBoundedXML(_ bytes: [UInt8]) -> Bool {
        var depth = 0
        for index in bytes.indices.dropLast() where bytes[index] == UInt8(ascii: "<") {
            switch bytes[index + 1] {
            case UInt8(ascii: "/"): depth -= 1
            case UInt8(ascii: "?"), UInt8(ascii: "!"): continue
            default:
                let end = bytes[index...].firstIndex(of: UInt8(ascii: ">")) ?? index
                if end > index, bytes[end - 1] == UInt8(ascii: "/") { continue }
                depth += 1
            }
            if depth > maxDepth { return false }
        }
        return true
    }

    /// The format is described in CFBinaryPList.c of Apple's CoreFoundation (opensource.apple.com).
    private struct BinaryPropertyList {
        private let bytes: [UInt8]
        private let offsetSize: Int
        private let referenceSize: Int
        private let count: Int
        private let top: Int
        private let table: Int

        /// Parses the trailer. Returns nil if it is invalid.
        init?(_ bytes: [UInt8]) {
            guard bytes.count >= 40 else { return nil }
            self.bytes = bytes
            let trailer = bytes.count - 32
            offsetSize = Int(bytes[trailer + 6])
            referenceSize = Int(bytes[trailer + 7])
            guard (1...8).contains(offsetSize), (1...8).contains(referenceSize),
                let count = Self.integer(bytes, trailer + 8, 8), let top = Self.integer(bytes, trailer + 16, 8),
                let table = Self.integer(bytes, trailer + 24, 8), table <= trailer,
                count <= (trailer - table) / offsetSize, top < count
            else { return nil }
            (self.count, self.top, self.table) = (count, top, table)
        }

        private static func integer(_ bytes: [UInt8], _ start: Int, _ size: Int) -> Int? {
            guard start >= 0, size <= bytes.count, start <= bytes.count - size else { return nil }
            let value = bytes[start..<start + size].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            return Int(exactly: value)
        }

        /// Walks from the top object without recursion.
        var isBounded: Bool {
            var waiting = [(object: top, depth: 1)]
            var seen = 0
            while let (object, depth) = waiting.popLast() {
                seen += 1
                guard depth <= maxDepth, seen <= maxObjects, let references = references(of: object),
                    references.count <= maxObjects - seen
                else { return false }
                waiting += references.map { ($0, depth + 1) }
            }
            return true
        }

        /// Returns the objects in an array, set or dictionary, including keys, or none for any other object. Returns
        /// nil if a reference is out of bounds.
        private func references(of object: Int) -> [Int]? {
            guard object < count, let start = Self.integer(bytes, table + object * offsetSize, offsetSize),
                start < table
            else { return nil }
            let marker = bytes[start]
            guard [0xA0, 0xB0, 0xC0, 0xD0].contains(marker & 0xF0) else { return [] }
            var elements = Int(marker & 0x0F)
            var position = start + 1
            if elements == 15 {
                // The number follows as an integer object: 0x1N, 2^N bytes.
                guard position < table, bytes[position] & 0xF0 == 0x10, bytes[position] & 0x0F <= 3 else { return nil }
                let size = 1 << Int(bytes[position] & 0x0F)
                guard let long = Self.integer(bytes, position + 1, size) else { return nil }
                elements = long
                position += 1 + size
            }
            guard elements <= table / 2 else { return nil }
            if marker & 0xF0 == 0xD0 { elements *= 2 }
            guard elements <= (table - position) / referenceSize else { return nil }
            let found = (0..<elements).compactMap {
                Self.integer(bytes, position + $0 * referenceSize, referenceSize)
            }
            return found.count == elements ? found : nil
        }
    }
}
