import AgentProtocol
import LinuxSystem
import Synchronization
import Testing

@testable import GroupStoreAgent

/// When reports of a relocation are sent, and that nothing is left to do afterwards.
@Suite struct RelocationAnnouncementsTests {
    private func report(_ fraction: Double) -> StoreProgress {
        StoreProgress(.migrating, fraction: fraction, activity: "busy")
    }

    @Test func sendsTheLastReportAndThenHasNoTimer() throws {
        let server = try RunningServer()
        let client = try server.connect()
        let subscribe = #"{"id":1,"op":"subscribe","store":"group.example/Notes.sqlite","progress":true}"#
        #expect(try client.ask(subscribe, id: 1).bool("ok") == true)
        let store = try #require(StoreAddress(bytes: Array("group.example/Notes.sqlite".utf8)))
        let waits = Mutex(0)
        let announcements = RelocationAnnouncements(server.feed) { waits.withLock { $0 += 1 } }
        let start = ContinuousClock.now
        announcements.relocating(store, waitingFor: [], at: start)
        #expect(announcements.dueAt == nil)
        announcements.progress(report(0.25), of: store, at: start + .milliseconds(10))
        announcements.progress(report(0.5), of: store, at: start + .milliseconds(20))
        #expect(announcements.dueAt == start + .milliseconds(100))
        #expect(waits.withLock { $0 } == 1)
        announcements.sendDue(at: start + .milliseconds(99))
        #expect(announcements.dueAt != nil)
        announcements.sendDue(at: start + .milliseconds(100))
        #expect(announcements.dueAt == nil)
        server.feed.announce(.reset(.overflow), of: store)
        let events = try (0..<3).map { _ in try client.next() }
        #expect(events.map { $0?.string("type") } == ["relocating", "migrating", "reset"])
        #expect(events[1]?["fraction"] == .number(0.5))
        // A report that still waits when the relocation ends is dropped.
        announcements.progress(report(0.75), of: store, at: start + .milliseconds(110))
        #expect(announcements.dueAt != nil)
        announcements.ended(store)
        #expect(announcements.dueAt == nil)
    }
}
