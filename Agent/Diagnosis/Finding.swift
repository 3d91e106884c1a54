/// What one check of `groupstore doctor` found.
package struct Finding: Equatable, Sendable {
    package enum Verdict: Equatable, Sendable {
        case fine
        /// It works, but not always or not well.
        case warning
        /// Something that groupstore does can't work.
        case problem(Cause)
    }

    package enum Cause: Equatable, Sendable {
        case inputOutput, notPermitted, configuration, conflict, badData
    }

    /// A word for scripts, such as `inotify_instances`.
    package let check: String
    package let verdict: Verdict
    package let message: String
    /// What to do about it, in a line.
    package let remedy: String?
    /// The processes that have the store open that this is about.
    package let holders: [StoreHolder]

    package init(
        _ check: String, _ verdict: Verdict, _ message: String, remedy: String? = nil, holders: [StoreHolder] = []
    ) {
        self.holders = holders
        self.check = check
        self.verdict = verdict
        self.message = message
        self.remedy = remedy
    }
}
