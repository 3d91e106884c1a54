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
    private let tables: TableFilter?
    private let starts: StepLines.Starts
    private var known: [LoggedTable.Definition: StoredTable] = [:]
    /// The tables that were printed lately.
    private var recent: [StepLines.Table] = []
    private var knownEncoding = PageFormat.Encoding.utf8
    /// The last lines of the step for programs, which are to be written together with the event's line.
    private(set) var rest: [UInt8] = []
    /// The number of rows of the step that was printed last.
    private(set) var rowCount = 0

    /// True if the step that was printed last has a row, or a change of the schema, that the filter admits.
    private var hasContent = false

    init(_ form: StepLines.Form, _ output: Output, tables: TableFilter?) {
        self.form = form
        self.output = output
        self.tables = tables
        starts = StepLines.Starts(form)
    }

    /// True if the step that was printed last, which changed these tables, is to be reported.
    func admits(_ names: Set<ExactName>) -> Bool {
        if form.operations != nil, !hasContent { return false }
        return tables.map { filter in names.contains { filter.admits($0.text) } } ?? true
    }

    /// Prints a step, but its `rest`. Returns the names of its tables; nil if they can't be told, because SQLite
    /// doesn't understand a table's definition.
    ///
    /// - Parameter meanwhile: Called after some rows: a step may have many.
    mutating func print(
        _ reader: StepReader, from token: String, meanwhile: () throws -> Void = {}
    ) throws -> Set<ExactName>? {
        if reader.step.encoding != knownEncoding || known.count > 512 { (known, recent) = ([:], []) }
        knownEncoding = reader.step.encoding
        rest = []
        var names: Set<ExactName> = []
        var isPrinted = false
        var table: StepTable?
        var length = 0
        var lines = StepLines(form, output, starts, step: reader.step, after: token)
        let encoding = TextEncoding(reader.step.encoding)
        do {
            try reader.forEach { logged in
                if let former = logged.before?.name { names.insert(ExactName(former)) }
                if let present = logged.after?.name { names.insert(ExactName(present)) }
                if logged.before != logged.after { names.insert("sqlite_schema") }
                guard logged.isAdmitted(by: tables) else { return table = nil }
                if !isPrinted { lines.addBatch(encoding) }
                isPrinted = true
                let opened = try self.table(logged, encoding)
                table = opened.content
                lines.add(opened)
            } row: { row in
                lines.countRow()
                if let table { lines.addRow(table, try table.values(of: row)) }
                length += 64 + (row.before?.count ?? 0) + (row.after?.count ?? 0)
                if length >= 4096 {
                    length = 0
                    try meanwhile()
                }
            }
        } catch is StoreError {
            lines.flush()
            return nil
        } catch is MalformedRecord {
            lines.flush()
            return nil
        }
        (hasContent, rowCount) = (lines.hasContent, lines.count)
        // Only a line for programs follows together with them.
        if output.json { rest = lines.takeRest() } else { lines.flush() }
        return names
    }

    private mutating func table(_ logged: LoggedTable, _ encoding: TextEncoding) throws -> StepLines.Table {
        if let found = recent.first(where: { $0.content.logged == logged }) { return found }
        let former = try logged.before.map { try definition($0, encoding) }
        let present = try logged.after.map { try definition($0, encoding) }
        let table = StepLines.Table(StepTable(logged, before: former, after: present), starts)
        if recent.count >= 16 { recent.removeFirst() }
        recent.append(table)
        return table
    }

    private mutating func definition(_ definition: LoggedTable.Definition, _ encoding: TextEncoding) throws
        -> StoredTable
    {
        if let found = known[definition] { return found }
        let table = try StoredTable(name: definition.name, creation: definition.sql, encoding: encoding)
        known[definition] = table
        return table
    }
}
