import SQLiteStore

/// A value that can't be bound unchanged: SQLite would repair it, or read it in another encoding.
struct UnbindableValue: Error {}

/// Binds values to a statement's parameters.
struct BindingSink: ValueSink {
    let statement: SQLiteStatement
    /// True if SQLite converts the texts to UTF-16, and reads BLOBs that are bound in another encoding than others.
    let convertsText: Bool
    /// The last parameter that was bound.
    private(set) var position: Int32 = 0
    /// The parameter that is the row's number, and that number.
    var alias: (position: Int32, number: Int64)?
    /// True if the alias' value was the number.
    private(set) var hasNumber = false

    init(_ statement: SQLiteStatement, convertsText: Bool) {
        (self.statement, self.convertsText) = (statement, convertsText)
    }

    private mutating func next() -> Int32 {
        position += 1
        return position
    }

    mutating func null() throws { try statement.bindNull(at: next()) }

    mutating func integer(_ number: Int64) throws {
        try statement.bind(number, at: next())
        if let alias, alias.position == position { hasNumber = alias.number == number }
    }

    mutating func real(_ number: Double) throws { try statement.bind(number, at: next()) }

    mutating func text(_ bytes: UnsafeRawBufferPointer) throws {
        if convertsText, Self.hasNoncharacter(bytes) { throw UnbindableValue() }
        try statement.bind(text: bytes, at: next())
    }

    mutating func malformedText(_ bytes: UnsafeRawBufferPointer) throws { throw UnbindableValue() }

    mutating func blob(_ bytes: UnsafeRawBufferPointer) throws {
        if convertsText, !bytes.isEmpty { throw UnbindableValue() }
        try statement.bind(blob: bytes, at: next())
    }

    /// Returns true if SQLite would repair the text when it converts it to UTF-16: it has U+FFFE or U+FFFF.
    private static func hasNoncharacter(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var index = 0
        while index + 2 < bytes.count {
            if bytes[index] == 0xEF, bytes[index + 1] == 0xBF, bytes[index + 2] >= 0xBE { return true }
            index += 1
        }
        return false
    }
}

/// Collects values. A text that SQLite would repair becomes its bytes in the store's encoding.
struct CollectingSink: ValueSink {
    let encoding: TextEncoding
    private(set) var values: [StoredValue] = []
    /// The values that are bytes and can't be bound.
    private(set) var kept: [Int: BoundValueTable.Kind] = [:]

    init(encoding: TextEncoding) { self.encoding = encoding }

    mutating func null() { values.append(.null) }
    mutating func integer(_ number: Int64) { values.append(.integer(number)) }
    mutating func real(_ number: Double) { values.append(.real(number)) }

    mutating func blob(_ bytes: UnsafeRawBufferPointer) {
        if encoding != .utf8, !bytes.isEmpty { kept[values.count] = .blob }
        values.append(.blob(Array(bytes)))
    }

    mutating func text(_ bytes: UnsafeRawBufferPointer) {
        let text = String(decoding: bytes, as: UTF8.self)
        guard encoding != .utf8, text.unicodeScalars.contains(where: { 0xFFFE...0xFFFF ~= $0.value }) else {
            return values.append(.text(text))
        }
        kept[values.count] = .text
        let isBigEndian = encoding == .utf16be
        values.append(
            .blob(
                text.utf16.flatMap { unit in
                    let (high, low) = (UInt8(unit >> 8), UInt8(truncatingIfNeeded: unit))
                    return isBigEndian ? [high, low] : [low, high]
                }))
    }

    mutating func malformedText(_ bytes: UnsafeRawBufferPointer) {
        kept[values.count] = .text
        values.append(.blob(Array(bytes)))
    }
}

/// Discards values.
struct SkippingSink: ValueSink {
    private(set) var count = 0
    mutating func null() { count += 1 }
    mutating func integer(_ number: Int64) { count += 1 }
    mutating func real(_ number: Double) { count += 1 }
    mutating func text(_ bytes: UnsafeRawBufferPointer) { count += 1 }
    mutating func malformedText(_ bytes: UnsafeRawBufferPointer) { count += 1 }
    mutating func blob(_ bytes: UnsafeRawBufferPointer) { count += 1 }
}

extension StoredValue {
    /// Passes the value to a sink.
    func pass(to sink: inout some ValueSink) throws {
        switch self {
        case .null: try sink.null()
        case .integer(let number): try sink.integer(number)
        case .real(let number): try sink.real(number)
        case .text(let text):
            var text = text
            try text.withUTF8 { try sink.text(UnsafeRawBufferPointer($0)) }
        case .malformedText(let bytes): try bytes.withUnsafeBytes { try sink.malformedText($0) }
        case .blob(let bytes): try bytes.withUnsafeBytes { try sink.blob($0) }
        }
    }
}
