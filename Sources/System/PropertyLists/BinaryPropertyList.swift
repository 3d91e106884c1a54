/// A reader of binary property lists (CFBinaryPList.c in Apple's CoreFoundation, opensource.apple.com).
///
/// Hand-written because FoundationEssentials reads property lists only through `Codable`, which has no type for a keyed
/// archive's references, and doesn't bound the depth.
///
/// Several references may share one object, so a short list can expand to an enormous or endless value. The reader
/// limits the depth, the number of objects and the number of bytes, and counts an object again for each reference to
/// it.
struct BinaryPropertyList {
    private static let maximumObjectCount = 2_000_000

    private let bytes: [UInt8]
    private let offsetSize: Int
    private let referenceSize: Int
    private let count: Int
    private let rootIndex: Int
    private let offsetTable: Int
    private var remainingObjects = BinaryPropertyList.maximumObjectCount
    /// The bytes of text and data that may still be read.
    private var remainingBytes = 256 << 20

    static func read(_ bytes: [UInt8]) throws(PropertyListError) -> PropertyListValue {
        guard var list = BinaryPropertyList(bytes) else { throw PropertyListError("the trailer is damaged") }
        return try list.value(list.rootIndex, depth: 1)
    }

    /// Returns nil if the trailer is invalid.
    private init?(_ bytes: [UInt8]) {
        guard bytes.count >= 40 else { return nil }
        let trailer = bytes.count - 32
        self.bytes = bytes
        offsetSize = Int(bytes[trailer + 6])
        referenceSize = Int(bytes[trailer + 7])
        guard (1...8).contains(offsetSize), (1...8).contains(referenceSize),
            let count = Self.integer(in: bytes, at: trailer + 8, size: 8),
            let rootIndex = Self.integer(in: bytes, at: trailer + 16, size: 8),
            let offsetTable = Self.integer(in: bytes, at: trailer + 24, size: 8), offsetTable <= trailer,
            count <= (trailer - offsetTable) / offsetSize, rootIndex < count
        else { return nil }
        (self.count, self.rootIndex, self.offsetTable) = (count, rootIndex, offsetTable)
    }

    private static func integer(in bytes: [UInt8], at start: Int, size: Int) -> Int? {
        guard start >= 0, size <= bytes.count, start <= bytes.count - size else { return nil }
        return Int(exactly: bytes[start..<start + size].reduce(UInt64(0)) { $0 << 8 | UInt64($1) })
    }

    private mutating func value(_ object: Int, depth: Int) throws(PropertyListError) -> PropertyListValue {
        remainingObjects -= 1
        guard depth <= PropertyListValue.maximumDepth else {
            throw PropertyListError("objects are nested more than \(PropertyListValue.maximumDepth) levels deep")
        }
        guard remainingObjects > 0 else { throw tooMany }
        guard object < count,
            let start = Self.integer(in: bytes, at: offsetTable + object * offsetSize, size: offsetSize),
            start < offsetTable
        else { throw PropertyListError("object \(object) is out of bounds") }
        let size = Int(bytes[start] & 0x0F)
        switch bytes[start] & 0xF0 {
        case 0x00: return .boolean(size == 9)
        case 0x10:
            let number = try signed(start + 1, size)
            // A 16-byte integer holds an unsigned value in its lower half: one that doesn't fit into 8 signed bytes.
            return size == 4 && number < 0 && isUnsigned(start + 1)
                ? .unsigned(UInt64(bitPattern: number)) : .integer(number)
        case 0x20: return .real(try real(start + 1, size))
        case 0x30: return .date(try real(start + 1, size))
        case 0x80: return .uid(try unsigned(start + 1, size + 1))
        case 0x40: return .data(Array(try content(start, unit: 1)))
        case 0x50: return .string(String(decoding: try content(start, unit: 1), as: UTF8.self))
        case 0x60:
            let units = try content(start, unit: 2)
            let characters = stride(from: units.startIndex, to: units.endIndex, by: 2).map {
                UInt16(units[$0]) << 8 | UInt16(units[$0 + 1])
            }
            return .string(String(decoding: characters, as: UTF16.self))
        case 0xA0, 0xB0, 0xC0: return .array(try elements(start, depth))
        case 0xD0: return .dictionary(try members(start, depth))
        default: throw PropertyListError("object \(object) has an unknown type")
        }
    }

    private var tooMany: PropertyListError {
        PropertyListError("it expands to more than \(Self.maximumObjectCount) objects")
    }

    private func unsigned(_ start: Int, _ size: Int) throws(PropertyListError) -> Int {
        guard start + size <= offsetTable, let value = Self.integer(in: bytes, at: start, size: size) else {
            throw PropertyListError("a number is out of bounds")
        }
        return value
    }

    /// Returns the integer of 2^`power` bytes. An 8-byte integer is signed; of a 16-byte integer only the lower half
    /// counts.
    private func signed(_ start: Int, _ power: Int) throws(PropertyListError) -> Int64 {
        let size = 1 << power
        guard power <= 4, start + size <= offsetTable else { throw PropertyListError("a number is out of bounds") }
        let raw = bytes[start..<start + size].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        return Int64(bitPattern: raw)
    }

    /// Returns true if the upper half of a 16-byte integer is zero.
    private func isUnsigned(_ start: Int) -> Bool { bytes[start..<start + 8].allSatisfy { $0 == 0 } }

    private func real(_ start: Int, _ power: Int) throws(PropertyListError) -> Double {
        let raw = UInt64(bitPattern: try signed(start, power))
        switch power {
        case 2: return Double(Float(bitPattern: UInt32(truncatingIfNeeded: raw)))
        case 3: return Double(bitPattern: raw)
        default: throw PropertyListError("a real number has an unknown size")
        }
    }

    /// Returns the element count and the start of the elements. The count is the marker's lower half, or an integer
    /// object after the marker.
    private func length(_ start: Int) throws(PropertyListError) -> (count: Int, start: Int) {
        let short = Int(bytes[start] & 0x0F)
        guard short == 15 else { return (short, start + 1) }
        guard start + 1 < offsetTable, bytes[start + 1] & 0xF0 == 0x10, bytes[start + 1] & 0x0F <= 3 else {
            throw PropertyListError("a length is damaged")
        }
        let size = 1 << Int(bytes[start + 1] & 0x0F)
        return (try unsigned(start + 2, size), start + 2 + size)
    }

    private mutating func content(_ start: Int, unit: Int) throws(PropertyListError) -> ArraySlice<UInt8> {
        let (count, start) = try length(start)
        guard start <= offsetTable, count <= (offsetTable - start) / unit else {
            throw PropertyListError("text or data is out of bounds")
        }
        remainingBytes -= count * unit
        guard remainingBytes >= 0 else { throw PropertyListError("it expands to too many bytes") }
        return bytes[start..<start + count * unit]
    }

    private func references(_ start: Int, _ factor: Int) throws(PropertyListError) -> [Int] {
        let (count, start) = try length(start)
        guard start <= offsetTable, count <= offsetTable / factor,
            count * factor <= (offsetTable - start) / referenceSize
        else {
            throw PropertyListError("a collection is out of bounds")
        }
        guard count <= remainingObjects else { throw tooMany }
        var found: [Int] = []
        for index in 0..<count * factor {
            found.append(try unsigned(start + index * referenceSize, referenceSize))
        }
        return found
    }

    private mutating func elements(_ start: Int, _ depth: Int) throws(PropertyListError) -> [PropertyListValue] {
        var found: [PropertyListValue] = []
        for reference in try references(start, 1) { found.append(try value(reference, depth: depth + 1)) }
        return found
    }

    private mutating func members(_ start: Int, _ depth: Int) throws(PropertyListError) -> [String: PropertyListValue] {
        let all = try references(start, 2)
        var found: [String: PropertyListValue] = [:]
        for index in 0..<all.count / 2 {
            guard case .string(let key) = try value(all[index], depth: depth + 1) else {
                throw PropertyListError("a key is not a string")
            }
            found[key] = try value(all[all.count / 2 + index], depth: depth + 1)
        }
        return found
    }
}
