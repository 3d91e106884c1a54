import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite(.ownDescriptors) struct OpenFileProbeTests {
    private let root: TemporaryDirectory
    private let directory: Directory

    init() throws {
        FileLease.ignoreBreakSignal()
        root = try TemporaryDirectory()
        directory = try Directory(root.path)
        _ = try directory.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
    }

    private func answer(_ probe: inout OpenFileProbe) -> OpenFileProbe.Answer { probe.ask("file", in: root.path) }

    private func open() throws -> Descriptor { try directory.open("file", flags: O_RDWR) }

    @Test func keepsTheFileOpenOnlyWhileOthersHaveIt() throws {
        var probe = OpenFileProbe()
        let program = try open()
        let answer1 = answer(&probe)
        #expect(answer1 == .open)
        // Another one is told so, without a descriptor.
        #expect(try FileProbe("file", in: directory) == nil)
        _ = consume program
        let answer2 = answer(&probe)
        #expect(answer2 == .closed)
        #expect(try FileProbe("file", in: directory) != nil)
    }

    /// Two agents that probe at each other's events would never rest.
    @Test func asksAgainByTimeWhileAnotherProbes() throws {
        let program = try open()
        var first = OpenFileProbe()
        var second = OpenFileProbe()
        let answer3 = answer(&first)
        #expect(answer3 == .open)
        let answer4 = answer(&second)
        #expect(answer4 == .unknown)
        let retryAt = try #require(second.retryAt)
        #expect(second.isPostponed)
        first.end()
        // The answer stands until that time.
        let answer5 = answer(&second)
        #expect(answer5 == .unknown)
        let isDueEarly = second.consumeDue()
        #expect(!isDueEarly)
        #expect(second.retryAt == retryAt)
        pause(ContinuousClock.now.duration(to: retryAt) + .milliseconds(1))
        let isDue = second.consumeDue()
        #expect(isDue)
        let answer6 = answer(&second)
        #expect(answer6 == .open)
        #expect(second.retryAt == nil)
        _ = consume program
    }

    @Test func absentFileIsClosed() {
        var probe = OpenFileProbe()
        let withoutFile = probe.ask("none", in: root.path)
        let withoutDirectory = probe.ask("file", in: root.path.appending("none"))
        #expect(withoutFile == .closed && withoutDirectory == .closed)
    }
}
