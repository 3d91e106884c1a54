import AgentProtocol
import CommandSupport
import GroupStoreAgent
import Glibc
import RowShadow
import SQLiteFormat
import SQLiteStore

/// Prints the rows of logged steps, as `watch` prints those of a history (Documentation/WireProtocol.md, "Rows with
/// values").
struct StepPrinter {
    private let form: StepLines.Form
    private let output: Output
    /// The only tables to print; nil for all.
    private let tables: Set<String>?
    private var known: [LoggedTable.Definition: StoredTable] = [:]
    private var knownEncoding = PageFormat.Encoding.utf8
    /// The last lines of the step for programs, which are to be written together with the event's line.
    private(set) var rest: [UInt8] = []

    /// True if the step that was printed last has a row, or a change of the schema, that the filter admits.
    private var hasContent = false

    init(_ form: StepLines.Form, _ output: Output, tables: Set<String>?) {
        self.form = form
        self.output = output
        self.tables = tables
    }

    /// True if the step that was printed last, which changed these tables, is to be reported.
    func admits(_ names: Set<String>) -> Bool {
        if form.operations != nil, !hasContent { return false }
        return tables.map { !$0.isDisjoint(with: names) } ?? true
    }

    /// Prints a step, but its `rest`. Returns the names of its tables; nil if they can't be told, because SQLite
    /// doesn't understand a table's definition.
    mutating func print(_ reader: StepReader, from token: String) throws -> Set<String>? {
        if reader.step.encoding != knownEncoding || known.count > 512 { known = [:] }
        knownEncoding = reader.step.encoding
        rest = []
        var names: Set<String> = []
        var isPrinted = false
        var table: StepTable?
        let shadow = token[..<(token.lastIndex(of: "-") ?? token.endIndex)]
        var lines = StepLines(form, output, step: reader.step, shadow: String(shadow))
        let encoding = Self.encoding(reader.step.encoding)
        do {
            try reader.forEach { logged in
                table?.finish(&lines)
                names.formUnion([logged.before?.name, logged.after?.name].compactMap { $0 })
                guard tables?.contains(logged.name) ?? true else { return table = nil }
                if !isPrinted { lines.addBatch(from: token, encoding) }
                isPrinted = true
                let former = try logged.before.map { try definition($0, encoding) }
                let present = try logged.after.map { try definition($0, encoding) }
                table = StepTable(logged, before: former, after: present)
                if let table { lines.add(table) }
            } row: { row in
                lines.countRow()
                try table?.add(row, &lines)
            }
            table?.finish(&lines)
        } catch is StoreError {
            lines.flush()
            return nil
        } catch is MalformedRecord {
            lines.flush()
            return nil
        }
        hasContent = lines.hasContent
        // Only a line for programs follows together with them.
        if output.json { rest = lines.takeRest() } else { lines.flush() }
        return names
    }

    private mutating func definition(_ definition: LoggedTable.Definition, _ encoding: TextEncoding) throws
        -> StoredTable
    {
        if let found = known[definition] { return found }
        let table = try StoredTable(name: definition.name, creation: definition.sql, encoding: encoding)
        known[definition] = table
        return table
    }

    private static func encoding(_ encoding: PageFormat.Encoding) -> TextEncoding {
        switch encoding {
        case .utf8: .utf8
        case .utf16LittleEndian: .utf16le
        case .utf16BigEndian: .utf16be
        }
    }
}

/// A record that isn't what the table's definition allows.
struct MalformedRecord: Error {}

/// A table of a step, with what its rows need.
struct StepTable {
    let logged: LoggedTable
    let before: StoredTable?
    let after: StoredTable?
    /// A row of a table WITHOUT ROWID. Keys are compared by their bytes: Swift takes some texts for equal.
    private struct Row {
        let key: [StoredValue]
        let values: [StoredValue]
        let bytes: [UInt8]
        let number: UInt64

        init(_ key: [StoredValue], _ values: [StoredValue], number: UInt64) {
            (self.key, self.values, self.number) = (key, values, number)
            bytes = key.reduce(into: []) {
                ValueJSON.append($1, to: &$0)
                $0.append(UInt8(ascii: ","))
            }
        }
    }

    private var gone: [Row] = []
    private var came: [Row] = []

    init(_ logged: LoggedTable, before: StoredTable?, after: StoredTable?) {
        self.logged = logged
        self.before = before
        self.after = after
    }

    /// The table as it is now, or as it was.
    var present: StoredTable? { after ?? before }
    /// True if the columns are the same before and after.
    var hasSameColumns: Bool { before == nil || after == nil || before?.columns == after?.columns }

    mutating func add(_ row: LoggedRow, _ lines: inout StepLines) throws {
        let former = try row.before.map { try Self.values(before, row.rowid, $0) }
        let latter = try row.after.map { try Self.values(after, row.rowid, $0) }
        if logged.hasRowids {
            let key = [StoredValue.integer(row.rowid)]
            return lines.addRow(self, key, before: former, after: latter, number: lines.number)
        }
        if let former, let key = before?.key(rowid: 0, former) { gone.append(Row(key, former, number: lines.number)) }
        if let latter, let key = after?.key(rowid: 0, latter) { came.append(Row(key, latter, number: lines.number)) }
    }

    /// Pairs the rows of a table WITHOUT ROWID by their keys.
    mutating func finish(_ lines: inout StepLines) {
        let latter = Set(came.map(\.bytes))
        let former = Dictionary(gone.map { ($0.bytes, $0.values) }, uniquingKeysWith: { first, _ in first })
        for row in gone where !latter.contains(row.bytes) {
            lines.addRow(self, row.key, before: row.values, after: nil, number: row.number)
        }
        for row in came {
            lines.addRow(self, row.key, before: former[row.bytes], after: row.values, number: row.number)
        }
        (gone, came) = ([], [])
    }

    private static func values(_ table: StoredTable?, _ rowid: Int64, _ record: [UInt8]) throws -> [StoredValue] {
        guard let values = table?.values(rowid: rowid, record) else { throw MalformedRecord() }
        return values
    }

    /// Returns the values of a former row in the present columns; a column that is new has the value of `latter`.
    func moved(_ former: [StoredValue], latter: [StoredValue]) -> [StoredValue] {
        guard !hasSameColumns, let before, let after else { return former }
        return after.columns.enumerated().map { place, name in
            before.columns.firstIndex(of: name).map { former[$0] } ?? latter[place]
        }
    }
}
