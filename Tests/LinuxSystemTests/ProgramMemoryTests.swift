import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite struct ProgramMemoryTests {
    /// The resident bytes of mapped files, in kB (proc(5), /proc/pid/status).
    private func residentFiles() throws -> Int {
        let file = try Descriptor(opening: "/proc/self/status", flags: 0)
        let lines = String(decoding: try file.read(count: 1 << 16, at: 0), as: UTF8.self).split(separator: "\n")
        let line = try #require(lines.first { $0.hasPrefix("RssFile:") })
        return try #require(line.split(separator: " ").dropFirst().first.flatMap { Int($0) })
    }

    @Test func releasesCodeThatIsNotUsed() throws {
        let before = try residentFiles()
        ProgramMemory.releaseUnused()
        #expect(try residentFiles() < before)
    }

    @Test func keepsWhatTheProgramHasWritten() throws {
        let own = Array(0..<100_000)
        ProgramMemory.releaseUnused()
        #expect(own.reduce(0, +) == 4_999_950_000)
        #expect(throws: SystemError.self) { _ = try Descriptor(opening: "/nowhere/at/all", flags: 0) }
    }
}
