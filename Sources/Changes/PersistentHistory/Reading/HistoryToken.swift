/// A position in a store's history: the last change that its holder knows.
///
/// A token stays valid when the store moves. It is valid while that change, or the one before the first remaining
/// change, exists; for a Core Data store, also only while the store's model version stays the same.
package struct HistoryToken: Sendable, Equatable, CustomStringConvertible {
    /// The history's identifier: drawn at random when history was enabled, or the store's UUID for Core Data's own.
    package let history: String
    /// The change's number; 0 before the first change.
    package let number: Int64
    /// The change's nonce. In a restored backup, the same number belongs to another change.
    package let nonce: Int64
    /// The fingerprint of a Core Data store's model version; nil if there is none.
    package let model: ModelFingerprint?
    /// For rows from a copy of the store's pages, the fingerprint of the last step that was told whole or in part; nil
    /// before the first one. In a restored copy, the same number belongs to another step.
    package let step: UInt64?

    /// True if the rows come from a copy of the store's pages. Then the nonce is the number of the last step that was
    /// told whole.
    package var isOfPages: Bool { history.hasPrefix(Self.pagesPrefix) }
    /// The prefix of the name that such a copy has in place of a history's identifier.
    package static let pagesPrefix = "pages-"

    package init(
        history: String, number: Int64, nonce: Int64, model: ModelFingerprint? = nil, step: UInt64? = nil
    ) {
        self.history = history
        self.number = number
        self.nonce = nonce
        self.model = model
        self.step = step
    }

    /// Parses a token, or returns nil for one of another kind. A subscription's token ends with one of these after a
    /// slash.
    package init?(_ text: String) {
        let own = text.split(separator: "/", omittingEmptySubsequences: false).last ?? ""
        let parts = own.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 4 || parts.count == 5, parts[0] == "h1", !parts[1].isEmpty, let number = Int64(parts[2]),
            number >= 0,
            let nonce = UInt64(parts[3], radix: 16)
        else { return nil }
        var (model, step): (ModelFingerprint?, UInt64?)
        if parts.count == 5 {
            guard let fingerprint = UInt64(parts[4], radix: 16) else { return nil }
            if parts[1].hasPrefix(Self.pagesPrefix) { step = fingerprint } else { model = ModelFingerprint(parts[4]) }
        }
        self.init(
            history: String(parts[1]), number: number, nonce: Int64(bitPattern: nonce), model: model, step: step)
    }

    package var description: String {
        "h1.\(history).\(number).\(String(UInt64(bitPattern: nonce), radix: 16))"
            + ((model?.description ?? step.map { String($0, radix: 16) }).map { "." + $0 } ?? "")
    }
}
