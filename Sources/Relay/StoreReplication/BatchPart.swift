import PersistentHistory

/// A part of a change batch, as one message carries it (Documentation/Relay.md, "The format").
package struct BatchPart: Sendable, Equatable {
    /// The part's place in its batch, from 1. Another part 1 begins another batch, and the one before is void.
    package let number: Int
    package let isLast: Bool
    /// The batch has every change after this token …
    package let from: HistoryToken
    /// … up to this one. It leads to the state that the home had at this token's commit.
    package let upto: HistoryToken
    /// The state of the schema (Documentation/Formats.md, "Change batches").
    package let schema: String
    /// Whole lines of JSON, in UTF-8.
    package let body: [UInt8]

    package init(number: Int, isLast: Bool, from: HistoryToken, upto: HistoryToken, schema: String, body: [UInt8]) {
        (self.number, self.isLast, self.from, self.upto) = (number, isLast, from, upto)
        (self.schema, self.body) = (schema, body)
    }

    /// The size of a body that every broker takes with its headers, in bytes.
    package static let maxBodySize = 768 << 10
}
