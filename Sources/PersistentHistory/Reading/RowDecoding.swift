import GRDB

extension Row {
    /// The value of a column; nil where it is of another kind, or there is no such column.
    ///
    /// GRDB's own subscript ends the process there, and anybody who may write to a store decides what its tables hold.
    func decoded<Value: DatabaseValueConvertible>(_ column: String, as type: Value.Type = Value.self) -> Value? {
        guard let value = self[column] as DatabaseValue? else { return nil }
        return Value.fromDatabaseValue(value)
    }
}
