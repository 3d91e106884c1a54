/// What a look at a store found.
package struct Observation: Sendable, Equatable {
    package enum Finding: Sendable, Equatable {
        /// Nothing was committed since the last look.
        case unchanged
        /// At least one transaction was committed, and a reader that opens the store now finds it.
        case changed
        /// What was known of the store is worth nothing: it was replaced, appeared, vanished, or couldn't be read.
        case discontinued(Reason)
    }

    package enum Reason: String, Sendable {
        case replaced, appeared, vanished, overflow, unreadable
    }

    package let finding: Finding
    /// When to look again although no event may come, since a commit may be on its way; nil: an event will tell.
    package let lookAgain: Duration?
    /// When to look again although nothing is expected: a file's times don't tell yet whether it was written again.
    package private(set) var makeSure: Duration?
    /// Which tables, when it is `changed`.
    package internal(set) var tables = TableChanges.unknown

    package init(_ finding: Finding, lookAgain: Duration? = nil) {
        self.finding = finding
        self.lookAgain = lookAgain
    }

    /// The same, to be made sure of after that time.
    func madeSure(after delay: Duration?) -> Observation {
        var other = self
        other.makeSure = delay
        return other
    }
}
