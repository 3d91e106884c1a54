import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreHazards
@testable import StoreWatching

@Suite struct HazardWatchTests {
    private let store: StoreAddress
    private var watch = HazardWatch()

    init() throws { store = try #require(StoreAddress(group: "group.example", name: Array("Notes.sqlite".utf8))) }

    private func hazard(_ code: StoreHazard.Code = .orphanedLog, pid: Int32 = 7, inode: UInt64 = 3) -> StoreHazard {
        StoreHazard(
            code, "/group/Notes.sqlite", FileHolder(pid: pid, program: "notes"),
            HeldFile(
                descriptor: 5, identity: FileIdentity(device: 1, inode: inode), links: 0,
                path: "/group/Notes.sqlite-wal"),
            expected: nil)
    }

    private mutating func look(_ found: [StoreHazard]) -> [StoreEvent] {
        watch.request(store, isUrgent: false)
        let stores = watch.begin(at: .now)
        return watch.end([store: found], of: stores).map(\.1)
    }

    @Test mutating func looksOnlyAfterAnEvent() {
        #expect(watch.due == nil)
        watch.request(store, isUrgent: false)
        #expect(watch.due.map { $0 <= .now } == true)
        #expect(look([]).isEmpty)
        #expect(watch.due == nil)
    }

    @Test mutating func looksOnceASecondUnlessAFileWentOrCame() throws {
        watch.request(store, isUrgent: false)
        _ = look([])
        watch.request(store, isUrgent: false)
        #expect(try #require(watch.due) > .now)
        for _ in 1...3 {
            watch.request(store, isUrgent: true)
            #expect(try isSoon(watch.due))
            _ = look([])
        }
        watch.request(store, isUrgent: true)
        #expect(try !isSoon(watch.due), "a program that opens and closes the store for each commit")
        watch.request(try #require(StoreAddress(group: "group.example", name: [0x62])), isUrgent: true)
        #expect(try isSoon(watch.due), "it delays no other store")
    }

    private func isSoon(_ due: ContinuousClock.Instant?) throws -> Bool {
        try #require(due) <= .now.advanced(by: HazardWatch.shortestInterval)
    }

    @Test mutating func reportsEachHazardOnceAndItsEnd() {
        watch.request(store, isUrgent: true)
        #expect(look([hazard()]) == [.hazard(HazardDescription(hazard()))])
        #expect(watch.due != nil, "it looks again while the store is in danger")
        #expect(look([hazard()]).isEmpty)
        let second = hazard(.droppedLocks, pid: 8)
        #expect(look([hazard(), second]) == [.hazard(HazardDescription(second))])
        watch.announce(store)
        #expect(look([hazard(), second]).map(\.type) == ["hazard", "hazard"], "to a new subscriber")
        #expect(look([second]) == [.hazardOver(HazardDescription(hazard(), isOver: true))])
        #expect(look([]).map(\.type) == ["hazard_over"])
        #expect(watch.due == nil && watch.known.isEmpty)
    }

    @Test mutating func aWarningWaitsForTheNextEvent() {
        watch.request(store, isUrgent: true)
        #expect(look([hazard(.oldSQLite)]).map(\.type) == ["hazard"])
        #expect(watch.due == nil, "nothing looks while nothing happens")
        watch.request(store, isUrgent: false)
        #expect(look([]).map(\.type) == ["hazard_over"])
    }

    @Test mutating func anotherFileIsAnotherHazard() {
        watch.request(store, isUrgent: true)
        _ = look([hazard(inode: 3)])
        #expect(look([hazard(inode: 4)]).map(\.type) == ["hazard_over", "hazard"])
    }

    @Test mutating func looksAtAStoreInDangerOnceASecond() throws {
        let now = ContinuousClock.now
        watch.request(store, isUrgent: true)
        _ = watch.end([store: [hazard()]], of: watch.begin(at: now))
        let other = try #require(StoreAddress(group: "group.example", name: [0x62]))
        watch.request(other, isUrgent: true)
        let stores = watch.begin(at: now.advanced(by: .milliseconds(500)))
        #expect(stores == [other])
        #expect(watch.end([:], of: stores).isEmpty)
        #expect(watch.begin(at: now.advanced(by: HazardWatch.interval)) == [store])
    }

    @Test mutating func makesUpForALookThatCouldNotBeMade() throws {
        watch.announce(store)
        watch.postpone(watch.begin(at: .now))
        #expect(try #require(watch.due) > .now, "a second later")
        #expect(look([hazard()]).map(\.type) == ["hazard"])
        watch.announce(store)
        watch.postpone(watch.begin(at: .now))
        #expect(look([hazard()]).map(\.type) == ["hazard"], "to the new subscriber")
    }

    @Test mutating func isSilentDuringALook() {
        watch.request(store, isUrgent: true)
        let stores = watch.begin(at: .now)
        watch.request(store, isUrgent: true)
        #expect(watch.due == nil)
        #expect(watch.end([:], of: stores).isEmpty)
        #expect(watch.due != nil)
    }
}
