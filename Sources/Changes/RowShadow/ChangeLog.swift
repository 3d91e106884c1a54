import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// One step of a store in the change log: what one transaction changed, or several together.
package struct LoggedStep: Sendable, Equatable {
    /// What is known of the transactions of a step.
    package enum Kind: UInt64, Sendable {
        /// Exactly one transaction.
        case exact
        /// The net difference of one or more transactions.
        case net
        /// The rows that changed aren't known: whoever follows the store reads it again.
        case gap
    }

    package let kind: Kind
    /// The number of the step. Steps follow each other without a gap in their numbers.
    package let number: UInt64
    /// The number of its first row; rows are numbered through all steps.
    package let firstRow: UInt64
    package let rowCount: UInt64
    /// Seconds since 1970.
    package let time: Double
    package let encoding: PageFormat.Encoding
    /// SQLite's count of the schema's changes (https://sqlite.org/fileformat2.html, §1.3.9).
    package let schemaVersion: UInt32

    static let headLength = 72
}

/// A table of a step: its definition in the schema before and after it.
package struct LoggedTable: Sendable, Equatable {
    package struct Definition: Sendable, Hashable {
        package let name: String
        package let sql: String

        package static func == (one: Definition, other: Definition) -> Bool {
            one.name.hasSameBytes(as: other.name) && one.sql.hasSameBytes(as: other.sql)
        }

        package func hash(into hasher: inout Hasher) {
            hasher.combine(bytesOf: name)
            hasher.combine(bytesOf: sql)
        }
    }

    /// Nil if there was no such table.
    package let before: Definition?
    /// Nil if the table is gone.
    package let after: Definition?
    package let hasRowids: Bool

    package init(before: Definition?, after: Definition?, hasRowids: Bool) {
        (self.before, self.after, self.hasRowids) = (before, after, hasRowids)
    }

    /// The table's present name, or its last one.
    package var name: String { after?.name ?? before?.name ?? "" }
}

extension LoggedTable {
    /// The table of a difference; nil for one of SQLite's own, or one that has only moved.
    init?(_ table: PageDifference.Table) {
        let name = table.after?.name ?? table.before?.name ?? ""
        let before = table.before.map { Definition(name: $0.name, sql: $0.sql) }
        let after = table.after.map { Definition(name: $0.name, sql: $0.sql) }
        let isMoved = before == after
        guard !name.lowercased().hasPrefix("sqlite_"), !isMoved || table.rowCount > 0 else { return nil }
        self.init(before: before, after: after, hasRowids: table.hasRowids)
    }
}

/// A row of a step, as records of the b-tree.
package struct LoggedRow: Sendable {
    /// The rowid; 0 in a table WITHOUT ROWID.
    package let rowid: Int64
    /// Nil if there was no such row.
    package let before: [UInt8]?
    /// Nil if the row is gone.
    package let after: [UInt8]?
}

/// The layout of a step: a head of eight words, then for each table its mark, definitions and rows, then an end mark.
/// All numbers have eight bytes, the lowest first. The head, each table, each row and the end mark are entries with a
/// checksum each.
enum StepLayout {
    static let magic: UInt64 = 0x0253_5257_4F52_5347
    static let table: UInt64 = 1
    static let row: UInt64 = 2
    static let end: UInt64 = 3
    /// The length of a definition or record that isn't there.
    static let absent = UInt64.max
}

/// Writes one step at the end of the log.
struct StepWriter {
    private let file: OwnFile
    private let start: Int64
    private let writer: BufferedWriter
    private var rowCount: UInt64 = 0

    /// - Parameter writer: That of the log, `file`, after the step before.
    init(_ writer: BufferedWriter, of file: OwnFile) throws {
        (self.file, self.writer) = (file, writer)
        start = writer.end
        for _ in 0..<LoggedStep.headLength / 8 { try writer.append(word: 0) }
    }

    func add(_ table: LoggedTable) throws {
        writer.beginEntry()
        try writer.append(word: StepLayout.table)
        try writer.append(word: table.hasRowids ? 1 : 0)
        for definition in [table.before, table.after] {
            guard let definition else {
                try append(nil)
                continue
            }
            try append(definition.name)
            try append(definition.sql)
        }
        try writer.endEntry()
    }

    mutating func addRow(
        _ rowid: Int64, before: UnsafeRawBufferPointer?, after: UnsafeRawBufferPointer?
    ) throws {
        rowCount += 1
        writer.beginEntry()
        try writer.append(word: StepLayout.row)
        try writer.append(word: UInt64(bitPattern: rowid))
        try append(before)
        try append(after)
        try writer.endEntry()
    }

    private func append(_ text: String) throws {
        var text = text
        try text.withUTF8 { try append(UnsafeRawBufferPointer($0)) }
    }

    private func append(_ bytes: UnsafeRawBufferPointer?) throws {
        guard let bytes else { return try writer.append(word: StepLayout.absent) }
        try writer.append(word: UInt64(bytes.count))
        try writer.append(bytes)
    }

    /// Completes the step. Returns the number of its rows.
    func finish(
        _ kind: LoggedStep.Kind, number: UInt64, firstRow: UInt64, time: Double, _ encoding: PageFormat.Encoding,
        schemaVersion: UInt32
    ) throws -> UInt64 {
        writer.beginEntry()
        try writer.append(word: StepLayout.end)
        try writer.endEntry()
        let head = BufferedWriter(file, at: start)
        let words: [UInt64] = [
            StepLayout.magic, UInt64(writer.end - start), kind.rawValue, number, firstRow, rowCount, time.bitPattern,
            UInt64(encoding.rawValue) | UInt64(schemaVersion) << 32,
        ]
        head.beginEntry()
        for word in words { try head.append(word: word) }
        try head.endEntry()
        try writer.replace(with: head)
        return rowCount
    }
}

/// Reads one step.
package final class StepReader {
    package let step: LoggedStep
    /// The offset of the next step.
    let next: Int64
    private let start: Int64
    private let file: OwnFile
    /// The place in the log behind the table or row that `forEach` read last.
    package private(set) var offset: Int64

    init(_ file: OwnFile, at offset: Int64) throws {
        self.file = file
        self.offset = offset
        start = offset
        var head = BufferedReader(file, at: offset, length: LoggedStep.headLength)
        head.beginEntry()
        let words = try (0..<8).map { _ in try head.word() }
        try head.endEntry()
        guard words[0] == StepLayout.magic, let kind = LoggedStep.Kind(rawValue: words[2]),
            words[1] >= UInt64(LoggedStep.headLength), words[1] < 1 << 60,
            let encoding = PageFormat.Encoding(rawValue: UInt32(truncatingIfNeeded: words[7]))
        else { throw RowShadowError.damaged(file.path) }
        next = offset + Int64(words[1])
        step = LoggedStep(
            kind: kind, number: words[3], firstRow: words[4], rowCount: words[5],
            time: Double(bitPattern: words[6]), encoding: encoding, schemaVersion: UInt32(words[7] >> 32))
    }

    /// Opens the next step of the same file.
    func following() throws -> StepReader { try StepReader(file, at: next) }

    /// Calls one of the closures with each table and each of its rows, in order.
    ///
    /// - Parameter place: A table, and an `offset` within its rows, to begin with; nil to begin with the first table.
    ///
    /// Throws what they throw, `RowShadowError.damaged` and `SystemError`.
    package func forEach(
        from place: (table: LoggedTable, offset: Int64)? = nil, table tableBody: (LoggedTable) throws -> Void,
        row rowBody: (LoggedRow) throws -> Void
    ) throws {
        let first = place?.offset ?? start + Int64(LoggedStep.headLength)
        var reader = BufferedReader(file, at: first, length: Int(min(1 << 16, max(next - first, 0))))
        if let place {
            offset = place.offset
            try tableBody(place.table)
        }
        while true {
            reader.beginEntry()
            switch try reader.word() {
            case StepLayout.table:
                let hasRowids = try reader.word() == 1
                let before = try definition(&reader)
                let table = LoggedTable(before: before, after: try definition(&reader), hasRowids: hasRowids)
                try reader.endEntry()
                offset = reader.offset
                try tableBody(table)
            case StepLayout.row:
                let rowid = Int64(bitPattern: try reader.word())
                let before = try record(&reader)
                let row = LoggedRow(rowid: rowid, before: before, after: try record(&reader))
                try reader.endEntry()
                offset = reader.offset
                try rowBody(row)
            case StepLayout.end: return try reader.endEntry()
            default: throw RowShadowError.damaged(file.path)
            }
        }
    }

    /// Returns the number of rows whose values the step deleted. Reads no record, and no checksum. Throws as `forEach`.
    func deletedRowCount() throws -> UInt64 {
        var reader = BufferedReader(file, at: start + Int64(LoggedStep.headLength))
        var count: UInt64 = 0
        while true {
            switch try reader.word() {
            case StepLayout.table:
                reader.skip(8)
                for _ in 0..<2 where try skipRecord(&reader) { _ = try skipRecord(&reader) }
                reader.skip(8)
            case StepLayout.row:
                reader.skip(8)
                let (hasBefore, hasAfter) = (try skipRecord(&reader), try skipRecord(&reader))
                reader.skip(8)
                if hasBefore, !hasAfter { count += 1 }
            case StepLayout.end: return count
            default: throw RowShadowError.damaged(file.path)
            }
        }
    }

    /// Passes over a definition's text or a record. Returns false if it isn't there.
    private func skipRecord(_ reader: inout BufferedReader) throws -> Bool {
        let count = try reader.word()
        if count == StepLayout.absent { return false }
        guard count < 1 << 31 else { throw RowShadowError.damaged(file.path) }
        reader.skip(Int(count))
        return true
    }

    private func record(_ reader: inout BufferedReader) throws -> [UInt8]? {
        let count = try reader.word()
        if count == StepLayout.absent { return nil }
        guard count < 1 << 31 else { throw RowShadowError.damaged(file.path) }
        return try reader.bytes(Int(count))
    }

    private func definition(_ reader: inout BufferedReader) throws -> LoggedTable.Definition? {
        guard let name = try record(&reader) else { return nil }
        return LoggedTable.Definition(name: String(decoding: name, as: UTF8.self), sql: try reader.text())
    }
}
