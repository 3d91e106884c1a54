import AgentProtocol
import CommandSupport
import Glibc
import GroupStoreAgent
import RowShadow
import SQLiteStore

/// The lines of one step, written in large pieces: a step may have millions of rows.
struct StepLines {
    /// What is printed of a store's steps.
    struct Form {
        /// The member `store` of the lines.
        let store: [UInt8]
        /// True if there are lines of batches and tables, too.
        var listsTables = true
        /// True if rows have their values.
        let values: Bool
        /// The only operations to print; nil for all.
        let operations: Set<String>?
        /// Nil for the lines of a change batch.
        let envelope: DebeziumEnvelope?
    }

    /// What the lines of a store's steps have in common.
    struct Starts {
        /// A line's members up to the one that tells the store.
        fileprivate let batch, table, row: [UInt8]

        init(_ form: Form) {
            func start(_ type: String) -> [UInt8] {
                var object: JSONObject = ["type": .string(type)]
                object.setPath("store", bytes: form.store)
                return Array(object.text.utf8.dropLast())
            }
            (batch, table, row) = (start("batch"), start("table"), start("row") + Array(",\"number\":".utf8))
        }
    }

    /// A table, and what is printed of it, which many steps have in common.
    struct Table {
        let content: StepTable
        fileprivate let name: [UInt8]
        fileprivate let columns: [[UInt8]]
        /// The line before its rows.
        fileprivate let line: [UInt8]

        init(_ content: StepTable, _ starts: Starts) {
            self.content = content
            name = Array(JSONValue.string(content.logged.name).text.utf8)
            columns = (content.present?.columns ?? []).map { Array(JSONValue.string($0).text.utf8) }
            var definition = Array((content.definition ?? [:]).text.utf8)
            // The store comes before it: a comma replaces the opening brace.
            definition[0] = UInt8(ascii: ",")
            line = starts.table + definition + [0x0A]
        }
    }

    private let form: Form
    private let output: Output
    private let step: LoggedStep
    private let starts: Starts
    /// The token before the step.
    private let token: String
    private var bytes: [UInt8] = []
    /// The lines that are added before the next row: a table may have no row that is to be printed.
    private var batchLine: [UInt8] = []
    private var tableLine: [UInt8] = []
    /// True if something was added: a row, or a table whose definition has changed.
    private(set) var hasContent = false
    /// The members of the step after each row's values.
    private var end: [UInt8] = []
    private var table: Table?
    /// The number of the row that was counted last.
    private var number: UInt64
    /// The number of rows that were added.
    private(set) var count = 0

    private static let limit = 1 << 16

    init(_ form: Form, _ output: Output, _ starts: Starts, step: LoggedStep, after token: String) {
        self.form = form
        self.output = output
        self.step = step
        self.starts = starts
        self.token = token
        number = step.firstRow - 1
        ValueJSON.append(",\"time\":", to: &end)
        if let time = WireTime.text(step.time) {
            ValueJSON.append(string: time, to: &end)
        } else {
            ValueJSON.append("null", to: &end)
        }
        ValueJSON.append(",\"transaction\":{\"exact\":", to: &end)
        if step.kind == .exact {
            ValueJSON.append("true", to: &end)
        } else {
            ValueJSON.append("false,\"net\":true", to: &end)
        }
        ValueJSON.append(",\"id\":", to: &end)
        ValueJSON.append(digits: step.number, to: &end)
        ValueJSON.append("}}\n", to: &end)
    }

    /// Adds the first line.
    mutating func addBatch(_ encoding: TextEncoding) {
        guard output.json, form.listsTables, form.envelope == nil else { return }
        batchLine = starts.batch
        ValueJSON.append(",\"from\":", to: &batchLine)
        ValueJSON.append(string: token, to: &batchLine)
        ValueJSON.append(",\"schema\":\"", to: &batchLine)
        ValueJSON.append(digits: UInt64(step.schemaVersion), to: &batchLine)
        ValueJSON.append("\",\"encoding\":", to: &batchLine)
        ValueJSON.append(string: encoding.rawValue, to: &batchLine)
        ValueJSON.append(",\"unrecorded\":[]}\n", to: &batchLine)
    }

    /// Adds the line before the rows of a table. If its definition has changed, the line has what it was before.
    mutating func add(_ table: Table) {
        guard table.content.present != nil else { return }
        self.table = table
        let isAltered = table.content.logged.before != table.content.logged.after
        if output.json, form.listsTables, form.envelope == nil { tableLine = table.line }
        if isAltered { addHead() }
    }

    /// Adds the lines that stand before the next one.
    private mutating func addHead() {
        hasContent = true
        if batchLine.isEmpty, tableLine.isEmpty { return }
        bytes += batchLine
        bytes += tableLine
        (batchLine, tableLine) = ([], [])
    }

    /// Counts a row of the step, which may not be printed.
    mutating func countRow() { number += 1 }

    /// Adds the row that was counted last, unless its values are the same.
    mutating func addRow(_ table: StepTable, _ row: StepRow) {
        let (key, before, after) = (row.key, row.before, row.after)
        let isSame = before.flatMap { former in after.map { table.sameColumns(former, $0) } }
        if let isSame, isSame.allSatisfy({ $0 }) { return }
        let operation: StaticString = before == nil ? "insert" : after == nil ? "delete" : "update"
        guard form.operations?.contains("\(operation)") ?? true else { return }
        addHead()
        count += 1
        if let envelope = form.envelope {
            let content = EnvelopeRow(table, row, number: number, of: step)
            // A token is its shadow's, and the number of a step.
            let shadow = String(token[..<(token.lastIndex(of: "-") ?? token.endIndex)])
            bytes += envelope.json(content, history: shadow).text.utf8
            bytes.append(0x0A)
            return flushIfFull()
        }
        guard output.json else { return addForPeople(table, operation, key, after) }
        bytes += starts.row
        ValueJSON.append(digits: number, to: &bytes)
        ValueJSON.append(",\"table\":", to: &bytes)
        bytes += self.table?.name ?? []
        ValueJSON.append(",\"op\":\"", to: &bytes)
        ValueJSON.append(operation, to: &bytes)
        ValueJSON.append("\",\"key\":", to: &bytes)
        if key.count == 1 { ValueJSON.append(key[0], to: &bytes) } else { append(key) }
        if form.values, let after {
            ValueJSON.append(",\"values\":", to: &bytes)
            append(after)
        }
        if form.values, table.hasSameColumns, let before {
            ValueJSON.append(",\"before\":", to: &bytes)
            append(before)
        }
        if let isSame, let columns = self.table?.columns {
            ValueJSON.append(",\"columns\":[", to: &bytes)
            var isFirst = true
            for place in isSame.indices where !isSame[place] {
                if !isFirst { bytes.append(UInt8(ascii: ",")) }
                isFirst = false
                bytes += columns[place]
            }
            bytes.append(UInt8(ascii: "]"))
        }
        bytes += end
        flushIfFull()
    }

    private mutating func append(_ values: [StoredValue]) {
        bytes.append(UInt8(ascii: "["))
        for place in values.indices {
            if place > 0 { bytes.append(UInt8(ascii: ",")) }
            ValueJSON.append(values[place], to: &bytes)
        }
        bytes.append(UInt8(ascii: "]"))
    }

    private func addForPeople(
        _ table: StepTable, _ operation: StaticString, _ key: [StoredValue], _ after: [StoredValue]?
    ) {
        var words = ["\(operation)", table.logged.name, key.map(\.json.text).joined(separator: ",")]
        if form.values, let after, let present = table.present {
            words += zip(present.columns, after).map { "\($0)=\($1.json.text)" }
        }
        output.record([:], "  " + words.joined(separator: "  "))
    }

    private mutating func flushIfFull() { if bytes.count >= Self.limit { flush() } }

    /// Returns the lines that were added and not written yet.
    mutating func takeRest() -> [UInt8] {
        let rest = bytes
        bytes = []
        return rest
    }

    /// Writes the lines that were added.
    mutating func flush() {
        if !bytes.isEmpty { Output.write(encoded: bytes[...]) }
        bytes.removeAll(keepingCapacity: true)
    }
}

extension EnvelopeRow {
    /// The row of a step.
    fileprivate init(_ table: StepTable, _ row: StepRow, number: UInt64, of step: LoggedStep) {
        let keyNames = table.present?.key ?? []
        self.init(
            table: table.logged.name, entity: nil, number: Int64(clamping: number), time: step.time,
            key: (keyNames.isEmpty ? ["rowid"] : keyNames, row.key),
            before: row.before.map { (table.before?.columns ?? [], $0) },
            after: row.after.map { (table.after?.columns ?? [], $0) },
            letter: row.before == nil ? "c" : row.after == nil ? "d" : "u", author: nil,
            transaction: step.kind == .exact ? Int64(clamping: step.number) : nil, isNet: step.kind == .net)
    }
}
