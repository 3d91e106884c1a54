import PersistentHistory

/// The first line of a batch.
struct BatchOpening: Equatable {
    let from: HistoryToken
    let upto: HistoryToken
    let schema: String
    let encoding: String
    /// The version of the history.
    let version: Int64
    /// The last change that the home has purged.
    let trimmed: Int64
    let trimmedNonce: Int64
    let userVersion: Int64
    let applicationID: Int64

    /// Reads the line. Throws `MalformedLine`.
    init(_ line: inout LineScanner) throws {
        func token(_ line: inout LineScanner) throws -> HistoryToken {
            guard let token = try HistoryToken(line.string()) else { throw line.malformed("a token was expected") }
            return token
        }
        try line.expect("{\"type\":\"batch\",\"format\":1,\"from\":")
        from = try token(&line)
        try line.expect(",\"upto\":")
        upto = try token(&line)
        try line.expect(",\"schema\":")
        schema = try line.string()
        try line.expect(",\"encoding\":")
        encoding = try line.string()
        try line.expect(",\"version\":")
        version = try line.integer()
        try line.expect(",\"trimmed\":[")
        trimmed = try line.integer()
        try line.expect(",")
        trimmedNonce = try line.anyInteger()
        try line.expect("],\"user_version\":")
        userVersion = try line.integer()
        try line.expect(",\"application_id\":")
        applicationID = try line.integer()
        try line.expect("}")
        try line.end()
        guard userVersion == Int64(Int32(truncatingIfNeeded: userVersion)),
            applicationID == Int64(Int32(truncatingIfNeeded: applicationID))
        else { throw line.malformed("a number is too large") }
    }
}

/// The last line of a batch.
struct BatchEnding: Equatable {
    let rows: Int64
    let changes: Int64
    /// The SHA-256 of all bytes before this line.
    let sha256: String

    /// The longest such line, in bytes.
    static let maxSize = 256

    /// Reads the line. Throws `MalformedLine`.
    init(_ line: inout LineScanner) throws {
        try line.expect("{\"type\":\"end\",\"rows\":")
        rows = try line.integer()
        try line.expect(",\"changes\":")
        changes = try line.integer()
        try line.expect(",\"sha256\":")
        sha256 = try line.string()
        try line.expect("}")
        try line.end()
    }
}

/// A `contents` line.
struct BatchContentsLine: Equatable {
    let table: BatchTableLine
    /// The SHA-256 of the lines of the table's current rows.
    let sha256: String
    /// The number of rows that follow; nil if the table is unchanged.
    let rows: Int64?

    /// Reads the line. Throws `MalformedLine`.
    init(_ line: inout LineScanner) throws {
        try line.expect("{\"type\":\"contents\",\"table\":")
        table = try BatchTableLine(membersOf: &line)
        try line.expect(",\"sha256\":")
        sha256 = try line.string()
        try line.expect(",\"rows\":")
        rows = line.take("null") ? nil : try line.integer()
        try line.expect("}")
        try line.end()
    }
}

/// A `table` line.
struct BatchTableLine: Equatable {
    let table: String
    let rowid: String?
    let key: [String]
    let columns: [String]

    /// Reads the line. Throws `MalformedLine`.
    init(_ line: inout LineScanner) throws {
        try line.expect("{\"type\":\"table\",\"table\":")
        try self.init(membersOf: &line)
        try line.expect("}")
        try line.end()
    }

    /// Reads a line from the table's name up to the columns.
    init(membersOf line: inout LineScanner) throws {
        func names(_ line: inout LineScanner) throws -> [String] {
            try line.expect("[")
            if line.take("]") { return [] }
            var names: [String] = []
            repeat {
                names.append(try line.string())
                // SQLite's own limit is 32,767 columns.
                guard names.count <= 32_767 else { throw line.malformed("there are too many columns") }
            } while line.take(",")
            try line.expect("]")
            return names
        }
        table = try line.string()
        rowid = line.take(",\"rowid\":") ? try line.string() : nil
        try line.expect(",\"key\":")
        key = try names(&line)
        try line.expect(",\"columns\":")
        columns = try names(&line)
    }

    /// Returns true if the line describes the table. Names are compared as bytes.
    func describes(_ other: ReplicatedTable) -> Bool {
        func isSame(_ one: [String], _ other: [String]) -> Bool {
            one.count == other.count && zip(one, other).allSatisfy { $0.utf8.elementsEqual($1.utf8) }
        }
        return isSame([table], [other.name]) && isSame([rowid ?? ""], [other.rowid ?? ""]) && isSame(key, other.key)
            && isSame(columns, other.columns)
    }
}

/// A sink for a single number.
private struct IntegerSink: ValueSink {
    var number: Int64?
    mutating func null() {}
    mutating func integer(_ number: Int64) { self.number = number }
    mutating func real(_ number: Double) {}
    mutating func text(_ bytes: UnsafeRawBufferPointer) {}
    mutating func malformedText(_ bytes: UnsafeRawBufferPointer) {}
    mutating func blob(_ bytes: UnsafeRawBufferPointer) {}
}

extension LineScanner {
    /// Returns the next INTEGER, which may be one beyond 53 bits.
    mutating func anyInteger() throws -> Int64 {
        var sink = IntegerSink()
        try value(into: &sink)
        guard let number = sink.number else { throw malformed("a whole number was expected") }
        return number
    }
}
