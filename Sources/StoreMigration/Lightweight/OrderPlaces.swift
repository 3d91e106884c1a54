import CoreDataStore
import PersistentStore

extension StoreWriter {
    /// Keys of an order, as Core Data gives them out: 2048 for the first, 1024 more for each next. Objects that had no
    /// order get that of their keys. Rows are written in the order in which they stand.
    func giveOutPlaces(_ column: String, in table: String, key: String, of list: String, by order: String)
        throws
    {
        try execute(
            "UPDATE \(table) SET \(column.sqlName) = places.place FROM (SELECT \(key) AS object, "
                + "1024 + 1024 * row_number() OVER (PARTITION BY \(list.sqlName) ORDER BY \(order.sqlName)) AS place "
                + "FROM \(table) WHERE \(list.sqlName) IS NOT NULL ORDER BY object) AS places "
                + "WHERE \(table).\(key) = places.object")
    }
}
