import CSQLite

/// An SQL function written in Swift. Confined to one thread.
private final class SQLiteFunction {
    let body: ([SQLiteValue]) throws -> SQLiteValue
    init(_ body: @escaping ([SQLiteValue]) throws -> SQLiteValue) { self.body = body }
}

extension SQLiteConnection {
    /// Registers an SQL function. An error that `body` throws ends the statement with its description.
    ///
    /// `arguments` is the number of arguments. `isDeterministic` is true if equal arguments give equal results.
    package func addFunction(
        _ name: String, arguments: Int32, isDeterministic: Bool = true,
        _ body: @escaping ([SQLiteValue]) throws -> SQLiteValue
    ) throws {
        let code = SQLiteFunction.add(
            name, arguments: arguments, isDeterministic: isDeterministic, to: connection, body)
        if code != SQLITE_OK { throw error(code) }
    }
}

extension SQLiteFunction {
    fileprivate static func add(
        _ name: String, arguments: Int32, isDeterministic: Bool, to connection: OpaquePointer,
        _ body: @escaping ([SQLiteValue]) throws -> SQLiteValue
    ) -> Int32 {
        let function = Unmanaged.passRetained(SQLiteFunction(body))
        let flags = SQLITE_UTF8 | (isDeterministic ? SQLITE_DETERMINISTIC : 0)
        // SQLite releases the function itself, even if it rejects it.
        return sqlite3_create_function_v2(
            connection, name, arguments, flags, function.toOpaque(),
            { context, count, values in
                guard let context, let data = sqlite3_user_data(context) else { return }
                let function = Unmanaged<SQLiteFunction>.fromOpaque(data).takeUnretainedValue()
                let arguments = (0..<Int(count)).map { SQLiteValue(argument: values?[$0]) }
                do { try function.body(arguments).setResult(of: context) } catch {
                    sqlite3_result_error(context, "\(error)", -1)
                }
            }, nil, nil, { data in data.map { Unmanaged<SQLiteFunction>.fromOpaque($0).release() } })
    }
}

extension SQLiteValue {
    fileprivate init(argument value: OpaquePointer?) {
        guard let value else {
            self = .null
            return
        }
        let count = Int(sqlite3_value_bytes(value))
        switch sqlite3_value_type(value) {
        case SQLITE_INTEGER: self = .integer(sqlite3_value_int64(value))
        case SQLITE_FLOAT: self = .real(sqlite3_value_double(value))
        case SQLITE_TEXT:
            let text = sqlite3_value_text(value)
            self = .text(
                String(decoding: UnsafeBufferPointer(start: text, count: text == nil ? 0 : count), as: UTF8.self))
        case SQLITE_BLOB:
            let bytes = sqlite3_value_blob(value)
            self = .blob(Array(UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : count)))
        default: self = .null
        }
    }

    fileprivate func setResult(of context: OpaquePointer) {
        // SQLITE_TRANSIENT, a cast in C: SQLite copies the bytes.
        let transient = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        switch self {
        case .null: sqlite3_result_null(context)
        case .integer(let number): sqlite3_result_int64(context, number)
        case .real(let number): sqlite3_result_double(context, number)
        case .text(let text):
            let count = UInt64(text.utf8.count)
            text.withCString { sqlite3_result_text64(context, $0, count, transient, UInt8(SQLITE_UTF8)) }
        case .blob(let bytes) where bytes.isEmpty: sqlite3_result_zeroblob(context, 0)
        case .blob(let bytes): sqlite3_result_blob64(context, bytes, UInt64(bytes.count), transient)
        }
    }
}
