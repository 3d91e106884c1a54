/// The objects of a store that break the rules of its model, listed whole.
package struct InvalidContent: Equatable, Sendable {
    /// The objects of one entity that break one rule.
    package struct Fault: Equatable, Sendable {
        package let entity: String
        /// The attribute, also as a key path to an element of a composite one, or the relationship.
        package let property: String
        /// Core Data's error code (CoreDataErrors.h).
        package let code: Int
        /// The reason, without the subject.
        package let message: String
        /// The keys of the objects in ascending order. Empty for a rule that can't be checked.
        package let keys: [Int64]

        package init(entity: String, property: String, code: Int, _ message: String, keys: [Int64]) {
            self.entity = entity
            self.property = property
            self.code = code
            self.message = message
            self.keys = keys
        }

        /// The fault with the keys of all objects; `1-4` stands for consecutive ones.
        package var sentence: String { sentence(keys: Self.ranges(keys)) }

        /// The fault with the keys of the first objects.
        package func sentence(first limit: Int) -> String {
            guard keys.count > limit else { return sentence }
            return sentence(keys: "\(Self.ranges(Array(keys.prefix(limit)))) and \(keys.count - limit) more")
        }

        private func sentence(keys words: String) -> String {
            let subject = "\(entity).\(property): \(message)"
            return keys.isEmpty ? subject : "\(subject): \(keys.count == 1 ? "object" : "objects") \(words)"
        }

        private static func ranges(_ keys: [Int64]) -> String {
            var runs: [ClosedRange<Int64>] = []
            for key in keys {
                if let last = runs.last, last.upperBound < .max, last.upperBound + 1 == key {
                    runs[runs.count - 1] = last.lowerBound...key
                } else {
                    runs.append(key...key)
                }
            }
            return runs.map { $0.count == 1 ? "\($0.lowerBound)" : "\($0.lowerBound)-\($0.upperBound)" }
                .joined(separator: ", ")
        }
    }

    package var faults: [Fault]

    package init(_ faults: [Fault] = []) { self.faults = faults }

    package var isEmpty: Bool { faults.isEmpty }
    /// The number of faults: an object that breaks two rules has two.
    package var count: Int { faults.reduce(0) { $0 + max($1.keys.count, 1) } }
}
