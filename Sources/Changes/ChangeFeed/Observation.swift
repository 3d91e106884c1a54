/// The result of one poll of a store.
package struct Observation: Sendable, Equatable {
    /// The change since the last poll.
    package enum Finding: Sendable, Equatable {
        /// No transaction was committed since the last poll.
        case unchanged
        /// At least one transaction was committed, and a reader that opens the store now sees it.
        case changed
        /// The baseline is void: the store was replaced, appeared, vanished, or couldn't be read.
        case discontinued(Reason)
    }

    /// The reason the baseline is void.
    package enum Reason: String, Sendable {
        case replaced, appeared, vanished, overflow, unreadable
    }

    /// The change since the last poll.
    package let finding: Finding
    /// The delay until the next poll if a commit may be under way. It is nil if an event will announce the next commit.
    package let nextPollDelay: Duration?
    /// The delay until a poll that confirms this result. It is set when a file's timestamps can't tell yet whether the
    /// file was written again.
    package private(set) var recheckDelay: Duration?
    /// The changed tables, if the finding is `changed`.
    package internal(set) var tables = TableChanges.unknown

    package init(_ finding: Finding, nextPollDelay: Duration? = nil) {
        self.finding = finding
        self.nextPollDelay = nextPollDelay
    }

    /// The same observation, as one of a change.
    var reportingChange: Observation {
        guard finding == .unchanged else { return self }
        return Observation(.changed, nextPollDelay: nextPollDelay).withRecheck(after: recheckDelay)
    }

    /// Returns a copy that asks for a confirming poll after `delay`.
    func withRecheck(after delay: Duration?) -> Observation {
        var copy = self
        copy.recheckDelay = delay
        return copy
    }
}
