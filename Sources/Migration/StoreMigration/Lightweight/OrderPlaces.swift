import CoreDataStore
import SQLiteStore

extension StoreWriter {
    /// Assigns positions to rows that have none, after the last one of their list. The values are those that Core Data
    /// assigns: 2048 for the first row and 1024 more for each next one.
    ///
    /// - Parameters:
    ///   - place: The column of positions.
    ///   - key: The column that identifies a row.
    ///   - list: The column that identifies the list that a row belongs to.
    ///   - order: The column that orders the rows without a position.
    func assignPlaces(_ place: String, in table: String, key: String, of list: String, by order: String) throws {
        let (place, list, order) = (place.sqlName, list.sqlName, order.sqlName)
        // Rows are written in the order in which they are stored.
        try execute(
            "UPDATE \(table) SET \(place) = places.place FROM (SELECT object, "
                + "ifnull(last, 1024) + 1024 * number AS place FROM (SELECT \(key) AS object, \(place) AS present, "
                + "max(\(place)) OVER (PARTITION BY \(list)) AS last, "
                + "row_number() OVER (PARTITION BY \(list), \(place) IS NULL ORDER BY \(order)) AS number "
                + "FROM \(table) WHERE \(list) IS NOT NULL) WHERE present IS NULL ORDER BY object) AS places "
                + "WHERE \(table).\(key) = places.object")
    }
}
