import Foundation
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct DiagnosisTests {
    @Test func acceptsAmpleLimits() {
        var inotify = InotifyDiagnosis()
        (inotify.instances, inotify.usedInstances, inotify.refusal) = (128, 12, nil)
        (inotify.watches, inotify.usedWatches, inotify.queuedEvents) = (65536, 100, 16384)
        #expect(inotify.findings.map(\.verdict) == [.fine, .fine, .fine])
        #expect(inotify.findings[0].message == "fs.inotify.max_user_instances is 128, 12 seen in use by this user")
    }

    @Test func warnsAboutLimitsThatAreNearlyReached() {
        var inotify = InotifyDiagnosis()
        (inotify.instances, inotify.usedInstances, inotify.refusal) = (128, 110, nil)
        (inotify.watches, inotify.usedWatches, inotify.queuedEvents) = (65536, 65000, 100)
        #expect(inotify.findings.map(\.verdict) == [.warning, .warning, .warning])
        #expect(inotify.findings[0].remedy == "raise it: sysctl -w fs.inotify.max_user_instances=256")
        #expect(inotify.findings[1].remedy == "raise it: sysctl -w fs.inotify.max_user_watches=131072")
    }

    @Test func reportsThatNoFurtherInstanceIsPossible() {
        var inotify = InotifyDiagnosis()
        (inotify.instances, inotify.refusal) = (128, .tooManyOpenFiles)
        #expect(inotify.findings[0].verdict == .problem(.configuration))
    }

    @Test func countsInstancesAndWatchesInUse() throws {
        let before = InotifyDiagnosis()
        let raw = inotify_init1(Int32(0))
        defer { close(raw) }
        let directory = try TemporaryDirectory()
        _ = directory.path.withPlatformString { inotify_add_watch(raw, $0, UInt32(IN_CREATE)) }
        let after = InotifyDiagnosis()
        #expect(try #require(after.usedWatches) >= 1)
        #expect(try #require(after.usedInstances) >= 1)
        #expect(before.instances == after.instances)
    }

    @Test func checksADirectoryWithoutChangingIt() throws {
        let directory = try TemporaryDirectory()
        let findings = DirectoryDiagnosis(directory.path).findings()
        #expect(findings.map(\.check) == ["directory", "file_system", "lease"])
        #expect(findings[0].verdict == .fine)
        #expect(findings[2].verdict == .fine)
        #expect(try Directory(directory.path).names().isEmpty)
    }

    @Test func takesNoRenamedLogOrIndexForAStore() throws {
        let directory = try TemporaryDirectory()
        let store = directory.path.appending("Notes.sqlite")
        let holder = try SQLiteHolder(store)
        try holder.run("c.execute('PRAGMA journal_mode = WAL'); c.execute('CREATE TABLE t (a)')")
        for suffix in ["-wal", "-shm"] {
            #expect(rename(store.string + suffix, directory.path.appending("old\(suffix).bak").string) == 0)
        }
        let findings = HazardDiagnosis(directory.path).findings()
        #expect(findings.map(\.check) == ["orphaned_log"])
        #expect(findings.first?.message.hasPrefix("\(store.string): ") == true)
        try holder.end()
    }

    /// They are no hazard: `doctor` exits with 0.
    @Test func namesTheFilesOfADamagedBranch() throws {
        let directory = try TemporaryDirectory()
        var place = try GroupContainer(directory.path).bookkeeping()
        for name: FilePath.Component in ["rescue", "run", "branch-0"] {
            place = try GroupContainer.child(name, of: place)
        }
        let file = ArchiveNote.Branch.File(identity: FileIdentity(device: 1, inode: 2), birth: nil)
        var record = BranchRecord(
            name: "Notes.sqlite", branch: ArchiveNote.Branch(database: file, log: nil, holders: "notes (pid 4711)"))
        record.damage = "its log is overwritten"
        try record.write(in: place)
        _ = try place.open("damaged", flags: O_WRONLY | O_CREAT, mode: 0o600)
        let found = BranchDiagnosis(directory.path).findings()
        #expect(found.map(\.code) == ["branch_damaged"] && found.map(\.verdict) == [.warning])
        #expect(found.first?.message.hasSuffix("kept in \(place.path.string)") == true, "\(found)")
        #expect(BranchDiagnosis(directory.path, only: "Other.sqlite").damaged.isEmpty)
    }

    @Test func warnsAboutAMissingDirectory() throws {
        let directory = try TemporaryDirectory()
        let findings = DirectoryDiagnosis(directory.path.appending("later")).findings()
        #expect(findings.map(\.verdict) == [.warning])
    }

    @Test func reportsAFileInPlaceOfADirectory() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path.appending("file")
        try Data().write(to: URL(fileURLWithPath: path.string))
        #expect(DirectoryDiagnosis(path).findings().map(\.verdict) == [.problem(.configuration)])
    }

    @Test func distinguishesLiveStaleAndMissingSockets() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path.appending("agent.sock")
        #expect(SocketDiagnosis(path).finding().message.hasSuffix("no agent runs here"))

        do {
            let listener = try UnixSocket.listen(at: path)
            let raw = listener.raw
            let server = Thread { Self.greet(on: raw) }
            server.start()
            let finding = SocketDiagnosis(path).finding()
            #expect(finding.verdict == .fine)
            #expect(finding.message.hasSuffix("agent 0.1.0 answers"))
            // A child of another test has a copy of the listener between fork and exec. This ends the copy too.
            shutdown(raw, CInt(SHUT_RDWR))
        }
        let stale = SocketDiagnosis(path).finding()
        #expect(stale.verdict == .warning)
        #expect(stale.message.contains("gone"))

        let long = directory.path.appending(String(repeating: "x", count: 120))
        #expect(SocketDiagnosis(long).finding().verdict == .problem(.configuration))
    }

    /// An agent that ends may leave a connection that it never accepted.
    @Test func anAgentThatEndsDuringTheQuestionIsGone() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path.appending("agent.sock")
        let listener = try UnixSocket.listen(at: path)
        let raw = listener.release()
        let ending = Thread {
            var ready = pollfd(fd: raw, events: Int16(POLLIN), revents: 0)
            _ = poll(&ready, 1, 60_000)
            shutdown(raw, CInt(SHUT_RDWR))
            close(raw)
        }
        ending.start()
        #expect(SocketDiagnosis(path).finding().verdict == .warning)
    }

    /// Answers one connection as an agent does.
    private static func greet(on listener: CInt) {
        var ready = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
        guard poll(&ready, 1, 10_000) == 1 else { return }
        let peer = accept(listener, nil, nil)
        let line = Array("{\"type\":\"hello\",\"proto\":1,\"agent\":\"0.1.0\",\"max_line\":32768}\n".utf8)
        // In two pieces, since a line may arrive in any.
        _ = line.withUnsafeBytes { write(peer, $0.baseAddress, 10) }
        _ = line.withUnsafeBytes { write(peer, $0.baseAddress?.advanced(by: 10), line.count - 10) }
        close(peer)
    }

    @Test func describesTheSystem() {
        let findings = SystemDiagnosis.findings()
        #expect(Set(findings.map(\.check)).isSuperset(of: ["proc", "leases", "sqlite", "kernel", "swift"]))
        #expect(findings.first { $0.check == "sqlite" }?.message.contains("libsqlite3.so") == true)
    }
}
