import AgentProtocol
import StoreRelocation

extension LegacyStore {
    enum State: Equatable {
        case absent
        case arriving
        /// Whole, and open in some program.
        case waiting
        case relocating
        case relocated
        /// A file without a store in it.
        case empty
        /// An attempt failed. It is repeated only after what it depended on has changed or, if the reason lies outside
        /// the stores, after a delay.
        case failed(Failure)

        /// True if a relocation is to come, or is running.
        var isPending: Bool {
            switch self {
            case .arriving, .waiting, .relocating: true
            case .absent, .relocated, .empty, .failed: false
            }
        }
    }

    struct Failure: Equatable {
        let state: String
        let code: String
        let detail: String
        let exitCode: Int32

    }

    /// The row of `status`; nil for the group's own store while there is nothing to report.
    var status: LegacyStatus? {
        if isGroupStore, [.absent, .arriving, .relocated, .empty].contains(state) { return nil }

        let (word, detail): (String, String?) =
            switch state {
            case .absent: (wasRelocated ? "relocated" : "absent", nil)
            case .arriving: ("arriving", nil)
            case .waiting: ("waiting", waitReason)
            case .relocating: ("relocating", nil)
            case .relocated: ("relocated", nil)
            case .empty: ("absent", "a file without a store in it")
            case .failed(let failure): (failure.state, failure.detail)
            }
        return LegacyStatus(
            store: address, path: file.path, state: word, detail: detail, code: lastFailure?.code,
            exitCode: lastFailure?.exitCode,
            waitingSince: [.arriving, .waiting].contains(state) ? pendingSince : nil)
    }
}

extension LegacyStore.Failure {
    init(_ failure: RelocationFailure) {
        self.init(
            state: failure.outcome, code: failure.code, detail: failure.messageWithRemedy, exitCode: failure.exitCode)
    }
}
