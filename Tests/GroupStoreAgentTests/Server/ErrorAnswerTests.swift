import AgentProtocol
import LinuxSystem
import PersistentHistory
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct ErrorAnswerTests {
    @Test func anAnswerHasTheErrorsCodeMessageAndRemedy() {
        let error = HistoryError.disabled("/srv/Notes.sqlite")
        #expect(error.shapeDefects == [])
        #expect(WireError(error) == WireError(code: "no_history", error.message, hint: error.remedy))
    }

    @Test func aFailedSystemCallIsTheAgentsError() {
        let error = SystemError("pthread_create", .resourceTemporarilyUnavailable)
        #expect(WireError(error) == WireError(code: "system", error.message, hint: error.remedy))
    }

    @Test func aConfigurationErrorNamesItsFileAndLine() {
        let error = ConfigurationError(in: "/etc/groupstore.yaml", line: 3, "a group is missing", remedy: "add one")
        #expect(error.shapeDefects == [])
        #expect(error.description == "/etc/groupstore.yaml:3: a group is missing")
        #expect(error.errorPath == "/etc/groupstore.yaml")
        #expect(
            ConfigurationError(in: nil, line: nil, "no group", remedy: "add one").description
                == "command line: no group")
    }

    @Test(arguments: [
        AgentInstance.Failure.alreadyServed(socket: "/run/agent", by: "7"), .notASocket("/run/agent"),
        .pathTooLong("/run/agent"),
    ])
    func anAgentThatCannotStartNamesItsSocket(_ failure: AgentInstance.Failure) {
        #expect(failure.shapeDefects == [])
        #expect(failure.errorPath == "/run/agent")
    }
}
