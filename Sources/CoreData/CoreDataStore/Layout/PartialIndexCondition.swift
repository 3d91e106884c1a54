/// The condition of a partial fetch index: a property has a value, or has none. (Core Data on macOS writes
/// `title != nil` as `WHERE ZTITLE IS NOT NULL`, according to the tests of FreeCoreData,
/// https://github.com/ashalkhakov/FreeCoreData, which run against it. Its form of other conditions is unknown.)
struct PartialIndexCondition: Equatable {
    let property: String
    /// True if the index contains the objects with a value, false if those without.
    let requiresValue: Bool

    /// Parses a predicate in format syntax; nil for any other condition.
    init?(_ predicate: String) {
        let words = predicate.split { $0.isWhitespace }.map(String.init)
        guard words.count == 3, ["nil", "null"].contains(words[2].lowercased()) else { return nil }
        switch words[1] {
        case "!=", "<>": requiresValue = true
        case "==", "=": requiresValue = false
        default: return nil
        }
        property = words[0]
    }

    /// Returns the `WHERE` clause with a leading space.
    func clause(_ column: String) -> String { " WHERE \(column) IS \(requiresValue ? "NOT " : "")NULL" }
}
