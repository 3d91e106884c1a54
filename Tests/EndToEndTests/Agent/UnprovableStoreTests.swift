import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A store on overlayfs, where users of a layer can't be seen.
@Suite(.ownThreads, .enabled(if: Overlay.canBeMounted, "mounting an overlay needs root"))
struct UnprovableStoreTests {
    @Test(arguments: [false, true])
    func isRelocatedOnlyIfTheConfigurationAssertsThatItIsClosed(_ isAsserted: Bool) throws {
        let overlay = try Overlay()
        let places = try Places()
        let store = overlay.path.appending("Notes.sqlite")
        try makeStore(store, rows: 3)
        let file = places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                stores: [{ name: Notes.sqlite, legacy: [\(store)], assume-closed: \(isAsserted), settle: 0ms }]
            """, to: file)
        let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
        let row = try agent.legacyRow { $0 == (isAsserted ? "relocated" : "refused") || $0 == "failed" }
        if isAsserted {
            #expect(row.string("state") == "relocated", "\(row.text)")
            #expect(try noteCount(places.group.appending("Notes.sqlite")) == 3)
            let status = try groupstore("status", "--json", environment: agent.environment)
            let receipt = status.objects.first { $0.type == "store" }?.object("last_relocation")
            #expect(receipt?.bool("assumed_closed") == true, "\(status.output)")
        } else {
            #expect(row.string("code") == "no_proof", "\(row.text)")
            #expect(try noteCount(store) == 3)
        }
        #expect(try agent.stop().status == 0)
    }

    /// Where it can be proved, it is.
    @Test func theAssertionCountsForNothingElsewhere() throws {
        let places = try Places()
        let store = places.legacy.appending("Notes.sqlite")
        try makeStore(store, rows: 3)
        let shell = try sqliteShell(store)
        try shell.execute("SELECT count(*) FROM note")
        let file = places.scratch("config.yaml")
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                stores: [{ name: Notes.sqlite, legacy: [\(store)], assume-closed: true, settle: 0ms }]
            """, to: file)
        let agent = try AgentProcess(["--config", Word(file)], socket: places.scratch("agent.sock"))
        _ = try agent.legacyRow { $0 == "waiting" }
        shell.closeInput()
        try shell.wait()
        _ = try agent.legacyRow { $0 == "relocated" }
        let status = try groupstore("status", "--json", environment: agent.environment)
        let receipt = try #require(status.objects.first { $0.type == "store" }?.object("last_relocation"))
        #expect(receipt["assumed_closed"] == nil)
        #expect(try agent.stop().status == 0)
    }
}

/// An overlay over two directories in memory, unmounted at the end.
private final class Overlay {
    static let canBeMounted = (try? Overlay()) != nil

    private let directory: TemporaryDirectory
    var path: FilePath { directory.path.appending("merged") }

    init() throws {
        directory = try TemporaryDirectory(in: "/dev/shm")
        let base = directory.path
        for name in ["lower", "upper", "work", "merged"] {
            try Directory(base).makeDirectory(.init(stringLiteral: name), mode: 0o700)
        }
        let done = try run(
            "mount",
            [
                "-t", "overlay", "overlay", "-o",
                Word("lowerdir=\(base)/lower,upperdir=\(base)/upper,workdir=\(base)/work"),
                Word(base.appending("merged")),
            ])
        guard done.status == 0 else { throw Unexpected("mount: \(done.errors)") }
    }

    deinit { _ = try? run("umount", [Word(path)]) }
}
