/// What a fetch index of some objects only is of: those that have a value, or those that have none. (Apple's Core Data on
/// macOS writes `title != nil` as `WHERE ZTITLE IS NOT NULL`, by the tests of FreeCoreData,
/// https://github.com/ashalkhakov/FreeCoreData, which run against it; how it writes other conditions isn't known.)
struct PartialIndexCondition: Equatable {
    let property: String
    let isOfValues: Bool

    /// - Parameter predicate: In the format language. Nil for another condition.
    init?(_ predicate: String) {
        let words = predicate.split { $0.isWhitespace }.map(String.init)
        guard words.count == 3, ["nil", "null"].contains(words[2].lowercased()) else { return nil }
        switch words[1] {
        case "!=", "<>": isOfValues = true
        case "==", "=": isOfValues = false
        default: return nil
        }
        property = words[0]
    }

    /// As it stands behind the statement.
    func text(_ column: String) -> String { " WHERE \(column) IS \(isOfValues ? "NOT " : "")NULL" }
}
