/// A position in a store's history: the last change that its holder knows. It is good wherever the store goes, and as
/// long as the change, or the one before the first that is left, is there, and of a Core Data store as long as the store is
/// of the same version of its model.
package struct HistoryToken: Sendable, Equatable, CustomStringConvertible {
    /// Of the history: drawn when it was enabled; of Core Data's own, the store's UUID.
    package let history: String
    /// 0 before the first change.
    package let number: Int64
    /// Of that change: after a restored backup the same number is another change.
    package let nonce: Int64
    /// Of the version of the model that a Core Data store is of; nil where there is none.
    package let model: ModelFingerprint?

    package init(history: String, number: Int64, nonce: Int64, model: ModelFingerprint? = nil) {
        self.history = history
        self.number = number
        self.nonce = nonce
        self.model = model
    }

    /// Nil for a token of another kind. That of a subscription ends with one of these, behind a slash.
    package init?(_ text: String) {
        let own = text.split(separator: "/", omittingEmptySubsequences: false).last ?? ""
        let parts = own.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 4 || parts.count == 5, parts[0] == "h1", !parts[1].isEmpty, let number = Int64(parts[2]),
            number >= 0,
            let nonce = UInt64(parts[3], radix: 16)
        else { return nil }
        var model: ModelFingerprint?
        if parts.count == 5 {
            guard let mark = ModelFingerprint(parts[4]) else { return nil }
            model = mark
        }
        self.init(history: String(parts[1]), number: number, nonce: Int64(bitPattern: nonce), model: model)
    }

    package var description: String {
        "h1.\(history).\(number).\(String(UInt64(bitPattern: nonce), radix: 16))" + (model.map { ".\($0)" } ?? "")
    }
}
