import StoreRelocation

/// The names that the two sides of a merge have in a rescue: there is one store, at its name, and a branch of it.
enum RescueWords {
    private static let names = [
        ("the legacy store", "the branch"), ("the legacy one", "the branch"), ("the group's store", "the store"),
        ("the group's folder", "the store's folder"), ("the group's are", "the store's are"),
        ("should be the group's", "should be the store's"), ("the group's", "the store"),
        ("--prefer group, --prefer legacy", "--prefer store, --prefer branch"),
    ]

    /// Returns a sentence of a merge with these names. Values of rows, in quotation marks, stay as they are.
    static func renamed(_ sentence: String) -> String {
        let parts = sentence.split(separator: "“", omittingEmptySubsequences: false)
        return parts.enumerated().map { index, part in
            let value = index == 0 ? part[..<part.startIndex] : part[..<(part.lastIndex(of: "”") ?? part.startIndex)]
            let rest = String(part[value.endIndex...])
            return String(value) + names.reduce(rest) { $0.replacing($1.0, with: $1.1) }
        }.joined(separator: "“")
    }
}

extension RelocationFailure {
    /// The failure with the names that a rescue has.
    var renamedForRescue: RelocationFailure {
        var failure = self
        failure.message = RescueWords.renamed(message)
        failure.remedy = RescueWords.renamed(remedy)
        return failure
    }
}
