import GRDB

extension Row {
    /// Returns a column's value, or nil if it has another type or there is no such column.
    ///
    /// GRDB's own subscript traps in those cases, and any process that may write to a store decides what its tables
    /// hold.
    func decoded<Value: DatabaseValueConvertible>(_ column: String, as type: Value.Type = Value.self) -> Value? {
        guard let value = self[column] as DatabaseValue? else { return nil }
        return Value.fromDatabaseValue(value)
    }
}
