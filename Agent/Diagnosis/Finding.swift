/// The finding of one check of `groupstore doctor`.
package struct Finding: Equatable, Sendable {
    package enum Verdict: Equatable, Sendable {
        case fine
        /// It works, but not always or not well.
        case warning
        /// A function of groupstore can't work.
        case problem(Cause)
    }

    package enum Cause: Equatable, Sendable {
        case inputOutput, notPermitted, configuration, conflict, badData
    }

    /// A word for scripts, such as `inotify_instances`.
    package let check: String
    package let verdict: Verdict
    package let message: String
    /// The remedy, in one line.
    package let remedy: String?
    /// A word for what the finding is about, beside others of the same check: `old_sqlite`; nil if the check says it.
    package let code: String?
    /// The processes that have the store in question open.
    package let holders: [StoreHolder]

    package init(
        _ check: String, _ verdict: Verdict, _ message: String, remedy: String? = nil, code: String? = nil,
        holders: [StoreHolder] = []
    ) {
        self.code = code
        self.holders = holders
        self.check = check
        self.verdict = verdict
        self.message = message
        self.remedy = remedy
    }
}
