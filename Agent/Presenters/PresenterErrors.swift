import AgentProtocol
import FileCoordination
import LinuxSystem

extension WireError {
    static func unknownPresenter(_ number: UInt64) -> WireError {
        WireError(
            code: "unknown_presenter", "this connection has no presenter p\(number)",
            hint: "use the number that present returned")
    }

    static var unknownClaim: WireError {
        WireError(code: "unknown_claim", "this connection has no such claim", hint: "it may be over")
    }

    static func unknownItem(of group: String) -> WireError {
        WireError(
            code: "unknown_store", "the agent does not serve group \(group)",
            hint: "name a group of the agent's configuration: GROUP_ID/NAME")
    }

    static func refused(by refusal: ClaimState.Refusal, isUntrusted: Bool) -> WireError {
        let reason = isUntrusted ? "" : ": \(refusal.message)"
        return WireError(
            code: "presenter_failed", "\(refusal.presenter) can't let go\(reason)",
            hint: "see what that program says, then try again", holders: [.init(refusal.presenter)])
    }

    static func unanswered(by holders: [FileHolder]) -> WireError {
        WireError(
            code: "busy", "presented by \(holders.list), which did not answer",
            hint: "is it stopped? end it, or try again", holders: holders.map { .init($0) })
    }
}
