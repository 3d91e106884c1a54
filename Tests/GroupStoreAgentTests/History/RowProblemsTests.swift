import AgentProtocol
import LinuxSystem
import RowShadow
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct RowProblemsTests {
    private let problems = RowProblems()
    private let store: StoreAddress
    private let full = SystemError("pwrite", .noSpace, path: "/group/.groupstore/rows/S/0/redo")

    init() throws { store = try #require(StoreAddress(bytes: Array("g/S".utf8))) }

    @Test func isLoggedWhenItBeginsOrItsReasonChangesAndWhenItIsOver() throws {
        guard case .began(let reason) = problems.record(full, of: store) else { throw Unexpected("not logged") }
        #expect(reason.contains("redo") && reason.contains("free space in"), "\(reason)")
        #expect(problems.record(full, of: store) == .none)
        #expect(problems.problem(of: store)?.code == "no_space")
        guard case .began = problems.record(RowShadowError.damaged("/x"), of: store) else {
            throw Unexpected("another reason isn't logged")
        }
        #expect(problems.end(store) == .over && problems.end(store) == .none)
        #expect(problems.problem(of: store) == nil)
    }

    @Test func aStoreThatIsBusyForAMomentIsNoProblem() {
        let start = ContinuousClock.now
        let busy = RowShadowError.busy("/group/S")
        #expect(problems.record(busy, of: store, now: start) == .none)
        #expect(problems.problem(of: store, now: start + .seconds(59)) == nil)
        #expect(problems.problem(of: store, now: start + .seconds(61))?.code == "busy")
        #expect(problems.record(busy, of: store, now: start + .seconds(61)) != .none)
        #expect(problems.record(busy, of: store, now: start + .seconds(99)) == .none)
        #expect(problems.end(store) == .over)
        #expect(problems.record(busy, of: store, now: start + .seconds(100)) == .none)
        #expect(problems.end(store) == .none)
    }
}
