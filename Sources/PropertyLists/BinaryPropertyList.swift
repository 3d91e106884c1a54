/// The binary property list, as CFBinaryPList.c of Apple's CoreFoundation describes it (opensource.apple.com).
///
/// An object may be referred to often, so that a short list can stand for an enormous one, or for an endless one: both
/// the depth and the number of objects, each counted as often as it is referred to, are bounded.
struct BinaryPropertyList {
    private static let deepest = 64
    private static let mostObjects = 2_000_000

    private let bytes: [UInt8]
    private let offsetSize: Int
    private let referenceSize: Int
    private let count: Int
    private let top: Int
    private let table: Int
    private var left = BinaryPropertyList.mostObjects
    /// Bytes of text and data that may still be read: an object's bytes count each time that it is referred to.
    private var bytesLeft = 256 << 20

    static func read(_ bytes: [UInt8]) throws(PropertyListError) -> PropertyListValue {
        guard var list = BinaryPropertyList(bytes) else { throw PropertyListError("the trailer is damaged") }
        return try list.value(list.top, depth: 1)
    }

    /// Nil when the trailer can't be right.
    private init?(_ bytes: [UInt8]) {
        guard bytes.count >= 40 else { return nil }
        let trailer = bytes.count - 32
        self.bytes = bytes
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
        return Int(exactly: bytes[start..<start + size].reduce(UInt64(0)) { $0 << 8 | UInt64($1) })
    }

    private mutating func value(_ object: Int, depth: Int) throws(PropertyListError) -> PropertyListValue {
        left -= 1
        guard depth <= Self.deepest else { throw PropertyListError("it is nested more than \(Self.deepest) deep") }
        guard left > 0 else { throw tooMany }
        guard object < count, let start = Self.integer(bytes, table + object * offsetSize, offsetSize), start < table
        else { throw PropertyListError("object \(object) lies outside") }
        let size = Int(bytes[start] & 0x0F)
        switch bytes[start] & 0xF0 {
        case 0x00: return .boolean(size == 9)
        case 0x10:
            let number = try signed(start + 1, size)
            // Of 16 bytes the lower half has no sign: so numbers are written that 8 signed bytes can't hold.
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
        default: throw PropertyListError("object \(object) is of no known type")
        }
    }

    private var tooMany: PropertyListError {
        PropertyListError("it stands for more than \(Self.mostObjects) objects")
    }

    private func unsigned(_ start: Int, _ size: Int) throws(PropertyListError) -> Int {
        guard start + size <= table, let value = Self.integer(bytes, start, size) else {
            throw PropertyListError("a number lies outside")
        }
        return value
    }

    /// Of 2^`power` bytes; those of 8 are signed, of 16 only the lower half counts.
    private func signed(_ start: Int, _ power: Int) throws(PropertyListError) -> Int64 {
        let size = 1 << power
        guard power <= 4, start + size <= table else { throw PropertyListError("a number lies outside") }
        let raw = bytes[start..<start + size].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        return Int64(bitPattern: raw)
    }

    /// Whether the upper half of 16 bytes is empty.
    private func isUnsigned(_ start: Int) -> Bool { bytes[start..<start + 8].allSatisfy { $0 == 0 } }

    private func real(_ start: Int, _ power: Int) throws(PropertyListError) -> Double {
        let raw = UInt64(bitPattern: try signed(start, power))
        switch power {
        case 2: return Double(Float(bitPattern: UInt32(truncatingIfNeeded: raw)))
        case 3: return Double(bitPattern: raw)
        default: throw PropertyListError("a real number has an unknown size")
        }
    }

    /// How many follow, and where they begin: in the marker's lower half, or as an integer object behind it.
    private func length(_ start: Int) throws(PropertyListError) -> (count: Int, start: Int) {
        let short = Int(bytes[start] & 0x0F)
        guard short == 15 else { return (short, start + 1) }
        guard start + 1 < table, bytes[start + 1] & 0xF0 == 0x10, bytes[start + 1] & 0x0F <= 3 else {
            throw PropertyListError("a length is damaged")
        }
        let size = 1 << Int(bytes[start + 1] & 0x0F)
        return (try unsigned(start + 2, size), start + 2 + size)
    }

    private mutating func content(_ start: Int, unit: Int) throws(PropertyListError) -> ArraySlice<UInt8> {
        let (count, start) = try length(start)
        guard start <= table, count <= (table - start) / unit else {
            throw PropertyListError("text or data lies outside")
        }
        bytesLeft -= count * unit
        guard bytesLeft >= 0 else { throw PropertyListError("it stands for too many bytes") }
        return bytes[start..<start + count * unit]
    }

    private func references(_ start: Int, _ factor: Int) throws(PropertyListError) -> [Int] {
        let (count, start) = try length(start)
        guard start <= table, count <= table / factor, count * factor <= (table - start) / referenceSize else {
            throw PropertyListError("a collection lies outside")
        }
        guard count <= left else { throw tooMany }
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
                throw PropertyListError("a key is no text")
            }
            found[key] = try value(all[all.count / 2 + index], depth: depth + 1)
        }
        return found
    }
}
