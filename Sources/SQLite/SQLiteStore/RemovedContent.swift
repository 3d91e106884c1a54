/// The content that a change of a store removes.
package struct RemovedContent: Equatable, Sendable {
    package struct Loss: Equatable, Sendable {
        package enum Unit: String, Sendable {
            case objects, values, links
            /// Values that change: their new type can't hold them, or others replace them.
            case changes
            /// Positions in an order that is given up.
            case positions
        }

        /// The entity's name in the older version.
        package let entity: String
        /// The property, or nil if whole objects are removed.
        package let property: String?
        package let unit: Unit
        package let count: Int64
        /// The reason, phrased to follow the name of the removed content, such as `is not in the newer model`.
        package let reason: String

        package init(entity: String, property: String? = nil, _ unit: Unit, count: Int64, reason: String) {
            self.entity = entity
            self.property = property
            self.unit = unit
            self.count = count
            self.reason = reason
        }

        /// The loss as a clause, such as `3 values are removed` or `1 value is changed`.
        package var words: String {
            guard unit != .changes else { return count == 1 ? "1 value is changed" : "\(count) values are changed" }
            return count == 1 ? "1 \(unit.rawValue.dropLast()) is removed" : "\(count) \(unit.rawValue) are removed"
        }

        package var sentence: String { entity + (property.map { "." + $0 } ?? "") + " \(reason): \(words)" }
    }

    package static let none = RemovedContent([])

    package let all: [Loss]

    package init(_ all: [Loss]) { self.all = all }

    package var isEmpty: Bool { all.isEmpty }
    package var sentences: [String] { all.map(\.sentence) }
}
