/// How far the work on a store is that is being relocated or migrated.
package struct StoreProgress: Sendable, Equatable {
    /// The kind of work, which is the event's type on the wire.
    package enum Work: String, Sendable {
        case relocating
        case migrating
    }

    package let work: Work
    /// The part that is done, from 0 to 1.
    package let fraction: Double
    /// The present activity, in words for people.
    package let activity: String

    package init(_ work: Work, fraction: Double, activity: String) {
        self.work = work
        self.fraction = fraction.isFinite ? min(max(fraction, 0), 1) : 0
        self.activity = activity
    }

    /// Reads the members that `write` wrote. Returns nil if the object doesn't say how far the work is.
    package init?(_ work: Work, _ object: JSONObject) {
        guard let fraction = object.number("fraction") else { return nil }
        self.init(work, fraction: fraction, activity: object.string("doing") ?? "")
    }

    /// Writes the members of an event or of a row of `status`.
    package func write(to object: inout JSONObject) {
        if work == .relocating { object["waiting_for"] = .array([]) }
        // Thousandths are as much as anybody shows.
        object["fraction"] = .number((fraction * 1000).rounded() / 1000)
        object["doing"] = .string(activity)
    }
}
