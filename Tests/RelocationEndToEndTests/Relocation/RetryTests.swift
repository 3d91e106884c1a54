import EndToEndSupport
import SystemPackage
import TestSupport
import Testing

/// Tests of retries. An obstacle may vanish without a change to the stores, so the agent gets no event.
@Suite(.ownThreads) struct RetryTests {
    @Test func theAgentRetriesByItself() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let bookkeeping = places.group.appending(".groupstore")
        try run("ln", ["-s", Word(places.scratch("elsewhere")), Word(bookkeeping)])
        let agent = try AgentProcess(places, legacy: [store.path])
        let subscriber = try agent.subscribe("Notes.sqlite")
        try subscriber.next("abandoned")
        #expect(try noteCount(store.path) == 10)

        try run("rm", [Word(bookkeeping)])
        try subscriber.next("relocated")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
        #expect(try agent.stop().status == 0)
    }
}
