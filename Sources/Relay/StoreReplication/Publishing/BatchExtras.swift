import PersistentHistory
import SQLiteStore

/// The state of the store that a batch carries beside its changes, because no trigger sees its changes.
struct BatchExtras {
    private let settings: [UInt8]
    /// The line with GS_TABLE.
    let tables: [UInt8]
    /// The line with sqlite_sequence; empty if the store has none.
    let sequence: [UInt8]

    var lines: [UInt8] { settings + tables + sequence }

    init(_ reader: StoreReader, _ position: RecordedPosition) throws {
        var line = Array(",\"version\":".utf8)
        ValueJSON.append(position.version, to: &line)
        line += ",\"trimmed\":[".utf8
        ValueJSON.append(position.trimmed, to: &line)
        line += ",".utf8
        ValueJSON.append(position.trimmedNonce, to: &line)
        line += "],\"user_version\":".utf8
        ValueJSON.append(try reader.integer("PRAGMA main.user_version") ?? 0, to: &line)
        line += ",\"application_id\":".utf8
        ValueJSON.append(try reader.integer("PRAGMA main.application_id") ?? 0, to: &line)
        settings = line + "}\n".utf8
        tables = try Self.line(
            "history_tables",
            of: "SELECT id, name, key_columns, columns, installed FROM main.GS_TABLE ORDER BY id", reader)
        sequence =
            try reader.hasTables("sqlite_sequence")
            ? Self.line("sequence", of: "SELECT name, seq FROM main.sqlite_sequence ORDER BY rowid", reader) : []
    }

    private static func line(_ type: String, of sql: String, _ reader: StoreReader) throws -> [UInt8] {
        var line = Array("{\"type\":\"\(type)\",\"rows\":[".utf8)
        let row = try reader.prepare(sql)
        let encoding = try TextEncoding(reader)
        var isFirst = true
        while try row.step() {
            line += isFirst ? "[".utf8 : ",[".utf8
            isFirst = false
            for column in 0..<row.columnCount {
                if column > 0 { line.append(UInt8(ascii: ",")) }
                row.appendJSON(column, encoding: encoding, to: &line)
            }
            line.append(UInt8(ascii: "]"))
        }
        return line + "]}\n".utf8
    }

    /// Returns a batch's first line.
    func opening(
        from: HistoryToken, upto: HistoryToken, schema: String, encoding: TextEncoding
    ) -> [UInt8] {
        var line = Array("{\"type\":\"batch\",\"format\":1,\"from\":".utf8)
        ValueJSON.append(string: from.description, to: &line)
        line += ",\"upto\":".utf8
        ValueJSON.append(string: upto.description, to: &line)
        line += ",\"schema\":".utf8
        ValueJSON.append(string: schema, to: &line)
        line += ",\"encoding\":".utf8
        ValueJSON.append(string: encoding.rawValue, to: &line)
        return line + settings
    }
}
