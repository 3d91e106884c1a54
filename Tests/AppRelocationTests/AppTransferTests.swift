import AppRelocation
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What a copy keeps, and when it is refused.
@Suite(.ownThreads) struct AppTransferTests {
    private func status(_ path: FilePath) throws -> FileStatus {
        let name = try #require(path.lastComponent)
        return try #require(try Directory(path.removingLastComponent()).status(name))
    }

    @Test func keepsModesTimesLinksHolesAndFIFOs() throws {
        let rig = try AppRig(.another)
        let longest = String(repeating: "n", count: 255)
        try run("touch", [Word(rig.source.appending(longest))])
        for name in ["file", "sub", "fifo"] {
            try run("touch", ["-d", "1969-12-31 23:59:58.5 UTC", Word(rig.source.appending(name))])
        }
        let names = ["file", "sub", "sub/deep", "sparse", "fifo", longest]
        let before = try names.map { try status(rig.source.pushing(FilePath($0))) }
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.method == .copy)
        let after = try names.map { try status(rig.destination.pushing(FilePath($0))) }
        #expect(after.map(\.permissions) == before.map(\.permissions))
        #expect(after.map(\.owner) == before.map(\.owner))
        #expect(after.map(\.modified) == before.map(\.modified))
        #expect(after[0].identity == (try status(rig.destination.pushing("sub/hard"))).identity)
        #expect(after[3].allocated < 1 << 17)
        #expect(after[4].kind == .other)
        let link = try Directory(rig.destination).linkTarget("absolute")
        #expect(link == rig.source.appending("file"))
        #expect(summary.notes.contains { $0.contains("absolute") })
    }

    @Test func copiesAFileAgainThatChangesMeanwhile() throws {
        let rig = try AppRig(.another)
        var isChanged = false
        let file = rig.source.appending("file")
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copiedFile, !isChanged else { return }
            isChanged = true
            let writer = try Descriptor(opening: file, flags: O_WRONLY)
            try writer.write(Array("new!".utf8), at: 0)
        }
        _ = try move.run()
        let moved = try Descriptor(opening: rig.destination.appending("file"), flags: O_RDONLY)
        #expect(try moved.read(count: 4, at: 0) == Array("new!".utf8))
    }

    @Test func aChangeAfterTheCopyIsNotLost() throws {
        let rig = try AppRig(.another)
        var times = 0
        let file = rig.source.appending("file")
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copied else { return }
            times += 1
            guard times == 1 else { return }
            let writer = try Descriptor(opening: file, flags: O_WRONLY)
            try writer.write(Array("late".utf8), at: 0)
        }
        _ = try move.run()
        #expect(times == 2)
        let moved = try Descriptor(opening: rig.destination.appending("sub/hard"), flags: O_RDONLY)
        #expect(try moved.read(count: 4, at: 0) == Array("late".utf8))
    }

    @Test func refusesAFileThatKeepsChanging() throws {
        let rig = try AppRig(.another)
        let file = rig.source.appending("file")
        let move = AppRelocation(rig.request(deadline: .zero)) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copied else { return }
            let writer = try Descriptor(opening: file, flags: O_WRONLY)
            try writer.write(Array("more".utf8), at: 0)
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "changing")
        #expect(try !rig.isLink(rig.source))
        #expect(try rig.rows(rig.source) == "100")
        #expect(try rig.leftovers() == [])
        #expect(FileStatus(following: rig.destination) == nil)
    }

    /// After the commit, a file that appeared at the old place is not removed.
    @Test func keepsWhatWasNotCopied() throws {
        let rig = try AppRig(.another)
        let hidden = rig.source.removingLastComponent()
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .receipt else { return }
            let name = try #require(try Directory(hidden).names().first(where: AppRig.isHidden))
            let file = try Directory(hidden).directory(name).open("late", flags: O_WRONLY | O_CREAT, mode: 0o600)
            try file.write(Array("precious".utf8), at: 0)
        }
        let summary = try move.run()
        #expect(summary.notes.contains { $0.hasPrefix("1 file stays") }, "\(summary.notes)")
        let name = try #require(try Directory(hidden).names().first(where: AppRig.isHidden))
        #expect(try Directory(hidden).directory(name).names() == ["late"])
    }

    @Test(arguments: AppRig.FileSystem.allCases) func refusesAnOpenStoreAndNamesItsProgram(
        _ fileSystem: AppRig.FileSystem
    ) throws {
        let rig = try AppRig(fileSystem)
        let store = rig.source.appending("store.db")
        let shell = try RunningProcess("sqlite3", ["-batch", "-init", "/dev/null", Word(store)])
        shell.send("SELECT 'open', count(*) FROM t;")
        try shell.line { $0.hasPrefix("open") }
        let failure = #expect(throws: RelocationFailure.self) {
            try AppRelocation(rig.request(deadline: .zero)).run()
        }
        #expect(failure?.code == "in_use")
        #expect(failure?.holders.map(\.program) == ["sqlite3"])
        #expect(try !rig.isLink(rig.source))
        shell.closeInput()
        try shell.wait()
        #expect(try AppRelocation(rig.request()).run().outcome == .moved)
        #expect(try rig.rows(rig.destination) == "100")
    }

    /// A program that works there without a file open goes on in the directory after the move.
    @Test(arguments: AppRig.FileSystem.allCases, ["cd \"$1\"/sub", "cd \"$1\"", "exec 3<\"$1\"/sub/deep"])
    func refusesADirectoryInWhichAProgramWorks(_ fileSystem: AppRig.FileSystem, _ use: String) throws {
        let rig = try AppRig(fileSystem)
        let program = try worker(use, rig.source)
        let failure = #expect(throws: RelocationFailure.self) {
            try AppRelocation(rig.request(deadline: .zero)).run()
        }
        #expect(failure?.code == "in_use", "\(failure?.message ?? "")")
        // A child of another test may have its descriptors until it executes its program.
        let holders = failure?.holders.map(\.pid) ?? []
        #expect(holders.contains(program.pid))
        #expect(try !rig.isLink(rig.source))
        program.closeInput()
        try program.wait()
        #expect(try AppRelocation(rig.request()).run().outcome == .moved)
    }

    private func worker(_ use: String, _ place: FilePath) throws -> RunningProcess {
        let program = try RunningProcess("sh", ["-c", Word(use + " && echo ready && read end"), "sh", Word(place)])
        try program.line { $0 == "ready" }
        return program
    }

    /// It came after the directory was seen to be unused.
    @Test func aProgramThatComesLaterKeepsTheDirectoryAtItsPlace() throws {
        let rig = try AppRig(.another)
        let parent = rig.source.removingLastComponent()
        var program: RunningProcess?
        let move = AppRelocation(rig.request(deadline: .zero)) {
            false
        } report: { _ in
        } step: { step in
            guard step == .withdrawn, program == nil else { return }
            let hidden = try #require(try Directory(parent).names().first(where: AppRig.isHidden))
            program = try worker("cd \"$1\"", parent.appending(hidden))
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        let holders = failure?.holders.map(\.pid) ?? []
        #expect(failure?.code == "in_use" && holders.contains(program?.pid ?? 0))
        #expect(try !rig.isLink(rig.source))
        #expect(try rig.leftovers() == [])
    }

    @Test(arguments: AppRig.FileSystem.allCases) func refusesATakenPlace(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        try Directory(rig.destination.removingLastComponent()).makeDirectory("moved", mode: 0o755)
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).run() }
        #expect(failure?.code == "destination_taken")
        #expect(try !rig.isLink(rig.source))
        let beside = try Directory(rig.destination.removingLastComponent()).names()
        #expect(!beside.contains(".groupstore"))
    }

    /// The kernel takes any bytes as an attribute's name.
    @Test func keepsAttributesWhoseNamesAreNoUTF8() throws {
        let rig = try AppRig(.another)
        let script = "import os, sys; os.setxattr(sys.argv[1], b'user.\\xff\\xfe', b'value')"
        let made = try run("python3", ["-c", Word(script), Word(rig.source.appending("file"))])
        guard made.status == 0 else { return }
        _ = try AppRelocation(rig.request()).run()
        let reading = "import os, sys; print(os.getxattr(sys.argv[1], b'user.\\xff\\xfe').decode())"
        #expect(try run("python3", ["-c", Word(reading), Word(rig.destination.appending("file"))]).output == "value\n")
    }

    /// A copy would make a second store, and a program that uses the other name would write to the first.
    @Test func refusesAStoreWithANameOutside() throws {
        let rig = try AppRig(.another)
        let outside = rig.source.removingLastComponent()
        try run("ln", [Word(rig.source.pushing("sub/small.db")), Word(outside.appending("other.db"))])
        let move = AppRelocation(rig.request())
        let previewed = #expect(throws: RelocationFailure.self) { try move.dryRun() }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(previewed?.message == failure?.message)
        #expect(failure?.code == "hard_linked")
        #expect(failure?.message.contains("sub/small.db") == true)
        #expect(try rig.leftovers() == [])
        try run("rm", [Word(outside.appending("other.db"))])
        try run("ln", [Word(rig.source.appending("new\nline")), Word(outside.appending("other"))])
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.notes.contains { $0.contains("line has another name outside") }, "\(summary.notes)")
    }

    @Test(arguments: AppRig.FileSystem.allCases) func namesLinksThatLeadNowhereAfterwards(
        _ fileSystem: AppRig.FileSystem
    ) throws {
        let rig = try AppRig(fileSystem)
        let outside = rig.source.removingLastComponent()
        let links = """
            cd "$1" && echo text >beside && cd app && ln -s ../beside up && ln -s ../../beside sub/up &&
            ln -s sub/../file around && ln -s ../absent absent
            """
        try run("sh", ["-c", Word(links), "sh", Word(outside)])
        let preview = try AppRelocation(rig.request()).dryRun()
        let summary = try AppRelocation(rig.request()).run()
        let expected = ["sub/up is a link to ../../beside", "up is a link to ../beside"]
        for notes in [preview.notes, summary.notes] {
            #expect(notes.filter { $0.hasSuffix("it leads nowhere") }.count == 2, "\(notes)")
            for start in expected { #expect(notes.contains { $0.hasPrefix(start) }, "\(notes)") }
        }
        #expect(try AppRelocation(rig.request()).undo().notes.filter { $0.contains("outside") } == [])
    }

    /// A failed write is reported with the name that the file would have had, not with that of its hidden copy.
    @Test func namesNoHiddenPath() throws {
        let rig = try AppRig(.another)
        let place = rig.destination.removingLastComponent()
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copiedFile else { return }
            let name = try #require(try Directory(place).names().first { $0.string.hasSuffix(".staged") })
            throw SystemError("write", .ioError, path: place.appending(name).appending("tree").pushing("sub/x"))
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.message.contains(rig.destination.pushing("sub/x").string) == true, "\(failure?.message ?? "")")
        #expect(failure?.message.contains(".staged") == false)
    }

    /// It was killed between mknod(2) and chmod(2).
    @Test func finishesASpecialFileThatAKilledRunHasBegun() throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            if step == .copied { throw AppRelocation.Abandonment() }
        }
        #expect(throws: RelocationFailure.self) { try move.run() }
        let place = rig.destination.removingLastComponent()
        let name = try #require(try Directory(place).names().first { $0.string.hasSuffix(".staged") })
        let fifo = place.appending(name).pushing("tree/fifo")
        try run("sh", ["-c", "rm \"$1\" && mkfifo -m 600 \"$1\"", "sh", Word(fifo)])
        var request = rig.request()
        request.deadline = .zero
        #expect(try AppRelocation(request).run().resumedFiles > 0)
        #expect(try rig.files(rig.destination) == before)
    }

    /// What can't be removed from the old place is named, and keeps nothing else there.
    @Test(arguments: [true, false]) func namesWhatCannotBeRemoved(_ isStillImmutable: Bool) throws {
        let rig = try AppRig(.another)
        let file = Word(rig.source.pushing("sub/hard"))
        // Needs root, and a file system with such flags.
        guard try run("chattr", ["+i", file]).status == 0 else { return }
        let summary = try AppRelocation(rig.request()).run()
        let old = try #require(
            try Directory(rig.source.removingLastComponent()).names().first { $0.string.hasPrefix(".groupstore-") })
        let rest = rig.source.removingLastComponent().appending(old)
        #expect(try Directory(rest).names() == ["file", "sub"])
        let note = try #require(summary.notes.first { $0.hasPrefix("2 files stay in \(rest)") }, "\(summary.notes)")
        #expect(note.contains("sub/hard (Operation not"))
        // The way back removes it, if it can by then.
        let release = { _ = try run("chattr", ["-i", Word(rest.pushing("sub/hard"))]) }
        if !isStillImmutable { try release() }
        let undone = try AppRelocation(rig.request()).undo()
        #expect(undone.notes.filter { $0.hasPrefix("2 files stay in \(rest)") }.count == (isStillImmutable ? 1 : 0))
        #expect(try rig.leftovers() == (isStillImmutable ? [old.string] : []))
        if isStillImmutable { try release() }
    }

    /// The way back of a copy makes another directory, which the first move's receipt must know.
    @Test func takesBackAChainOfMoves() throws {
        let rig = try AppRig(.another)
        let before = try rig.files(rig.source)
        _ = try AppRelocation(rig.request()).run()
        let further = AppMoveRequest(
            source: rig.destination, destination: rig.source.removingLastComponent().appending("further"))
        _ = try AppRelocation(further).run()
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(rig.request()).undo() }
        #expect(failure?.code == "moved_on")
        #expect(failure?.remedy.contains("--undo \(rig.destination) && ") == true, "\(failure?.remedy ?? "")")
        _ = try AppRelocation(further).undo()
        _ = try AppRelocation(rig.request()).undo()
        #expect(try rig.files(rig.source) == before)
        #expect(try rig.leftovers() == [])
    }

    @Test func aDryRunChangesNothing() throws {
        let rig = try AppRig(.another)
        let before = try DirectorySnapshot(rig.source.removingLastComponent(), withBookkeeping: true)
        let preview = try AppRelocation(rig.request()).dryRun()
        #expect(preview.method == .copy)
        #expect(preview.contents.stores?.map(\.string).sorted() == ["store.db", "sub/small.db"])
        #expect(try DirectorySnapshot(rig.source.removingLastComponent(), withBookkeeping: true) == before)
        #expect(try Directory(rig.destination.removingLastComponent()).names() == [])
    }

    @Test(.enabled(if: geteuid() == 0, "needs root")) func rootDoesNotLockAServiceOut() throws {
        let (rig, root) = (try AppRig(.same), try TemporaryDirectory())
        let script = """
            mkdir -p "$1/etc/systemd/system" && cd "$1/etc/systemd/system" &&
            printf '[Service]\\nProtectSystem=strict\\nReadWritePaths=%s\\nExecStart=/bin/x %s\\n' "$2" "$3" >x.service
            """
        let above = rig.source.removingLastComponent()
        try run("sh", ["-c", Word(script), "sh", Word(root.path), Word(above), Word(rig.source.appending("file"))])
        var request = rig.request()
        request.unitRoot = root.path
        let previewed = #expect(throws: RelocationFailure.self) { try AppRelocation(request).dryRun() }
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(failure?.code == "service_locked_out" && failure?.message == previewed?.message)
        #expect(
            failure?.remedy.contains("'ReadWritePaths=-\(rig.destination)'") == true
                || failure?.remedy.contains("ReadWritePaths=-\(rig.destination) ") == true, "\(failure?.remedy ?? "")")
        #expect(try !rig.isLink(rig.source))
        request.unitRoot = rig.source
        #expect(try AppRelocation(request).run().outcome == .moved)
    }
}
