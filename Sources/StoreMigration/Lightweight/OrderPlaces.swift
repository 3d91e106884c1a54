import CoreDataStore
import SQLiteStore

extension StoreWriter {
    /// Gives the rows that have no place yet those behind their list's last one: keys of an order, as Core Data gives them
    /// out, 2048 for the first and 1024 more for each next. Rows without a place get the order of their keys.
    ///
    /// - Parameters:
    ///   - place: The column of places.
    ///   - key: The column that says which row it is.
    ///   - list: The column that says to which list a row belongs.
    ///   - order: The column whose values put rows without a place in order.
    func giveOutPlaces(_ place: String, in table: String, key: String, of list: String, by order: String) throws {
        let (place, list, order) = (place.sqlName, list.sqlName, order.sqlName)
        // Rows are written in the order in which they stand.
        try execute(
            "UPDATE \(table) SET \(place) = places.place FROM (SELECT object, "
                + "ifnull(last, 1024) + 1024 * number AS place FROM (SELECT \(key) AS object, \(place) AS present, "
                + "max(\(place)) OVER (PARTITION BY \(list)) AS last, "
                + "row_number() OVER (PARTITION BY \(list), \(place) IS NULL ORDER BY \(order)) AS number "
                + "FROM \(table) WHERE \(list) IS NOT NULL) WHERE present IS NULL ORDER BY object) AS places "
                + "WHERE \(table).\(key) = places.object")
    }
}
