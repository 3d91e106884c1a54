import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Programs that a killed `move-app --stop-holders` has stopped, with a `systemctl` that only writes down what it does.
@Suite(.ownThreads) struct StoppedProgramsTests {
    private let places: Places
    private let binaries: FilePath

    init() throws {
        places = try Places()
        binaries = places.scratch("bin")
        try run("mkdir", ["-p", Word(binaries), Word(places.group.appending(".groupstore"))])
        let script = """
            #!/bin/sh
            cd '\(binaries)'
            case " $* " in
            *" show "*) echo Id=notes.service; [ -e active ] && echo ActiveState=active || echo ActiveState=inactive ;;
            *" start "*) echo "$*" >>starts; [ ! -e slow ] || { kill -INT $PPID; exec sleep 600; }
                if [ -e broken ]; then echo 'Job failed.' >&2; exit 1; fi; : >active ;;
            *) exit 1 ;;
            esac
            """
        try write(script, to: binaries.appending("systemctl"))
        try run("chmod", ["755", Word(binaries.appending("systemctl"))])
        let record = """
            {"version": 1, "source": "\(places.legacy)/app", "destination": "\(places.group)/app",
            "programs": [{"manager": "systemd", "name": "notes.service", "isStartedAgain": true}]}
            """
        try write(record, to: places.group.pushing(".groupstore/app-stopped.json"))
    }

    private var environment: [String: String] {
        ["PATH": "\(binaries):\(getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin")"]
    }

    private func recover(_ options: Word...) throws -> FinishedProcess {
        try groupstore("recover", Word(places.group), "--json", options: options, environment: environment)
    }

    private func starts() throws -> [String] {
        guard FileStatus(following: binaries.appending("starts")) != nil else { return [] }
        return try run("cat", [Word(binaries.appending("starts"))]).output.split(separator: "\n").map(String.init)
    }

    /// `relocate` asks by `flatpak info`, here as a user who has let the app in or hasn't.
    @Test func aStoreStaysInReachOfItsFlatpakApp() throws {
        let data = places.legacy.pushing(".var/app/org.a.Notes/data")
        try run("mkdir", ["-p", Word(data)])
        try makeStore(data.appending("Notes.sqlite"), rows: 3)
        let words: [Word] = ["relocate", Word(data.appending("Notes.sqlite")), Word(places.group), "--json"]
        for (access, status) in [("hidden", Int32(77)), ("read-write", 0)] {
            try write("#!/bin/sh\necho \(access)\n", to: binaries.appending("flatpak"))
            try run("chmod", ["755", Word(binaries.appending("flatpak"))])
            let done = try run(Programs.groupstore, words, environment: environment)
            #expect(done.status == status, "\(done.output)\(done.errors)")
            let code = done.summary.object("error")?.string("code")
            #expect(code == (status == 0 ? nil : "app_locked_out"))
        }
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 3)
    }

    @Test func statusAndDoctorNameThemUntilTheyAreStarted() throws {
        var environment = environment
        environment["GROUPSTORE_SOCKET"] = places.scratch("agent.sock").string
        func check(_ command: Word, _ options: Word...) throws -> FinishedProcess {
            try groupstore(command, Word(places.group), options: options, environment: environment)
        }
        for done in try [check("status", "--check"), check("doctor")] {
            #expect(done.status == 65, "\(done.output)\(done.errors)")
            let line = done.output.split(separator: "\n").first { $0.contains("notes.service") }
            #expect(line?.contains("groupstore recover \(places.group)") == true, "\(done.output)")
        }
        #expect(try check("status").output.contains("groupstore recover --leave-stopped \(places.group)"))
        #expect(try check("recover").status == 0)
        #expect(try check("status", "--check").output == "")
        #expect(try check("doctor").status == 0)
    }

    @Test func recoverStartsThemOnce() throws {
        let planned = try recover("--dry-run")
        #expect(planned.outcome == "finished" && planned.summary.bool("dry_run") == true, "\(planned.errors)")
        #expect(try starts() == [])
        for outcome in ["finished", "nothing_to_do"] {
            let done = try recover()
            #expect(done.status == 0 && done.outcome == outcome, "\(done.errors)")
            #expect(try starts() == ["--no-ask-password start -- notes.service"])
        }
        #expect(try Directory(places.group).names() == [])
    }

    @Test func anAgentStartsThemOnce() throws {
        var variables = environment
        variables["GROUPSTORE_SOCKET"] = places.scratch("agent.sock").string
        let group: Word = "group.com.example.tests=" + Word(places.group)
        let agent = try RunningProcess(Programs.groupstore, ["agent", "--group", group], environment: variables)
        var line = ""
        repeat { line = try #require(try agent.line(.errors)) } while !line.contains("notes.service")
        #expect(line.contains("started notes.service"), "\(line)")
        agent.signal(SIGTERM)
        _ = try agent.wait()
        #expect(try starts() == ["--no-ask-password start -- notes.service"])
        #expect(try recover().outcome == "nothing_to_do")
    }

    /// The manager goes on with the start, and the next run looks for the result.
    @Test func anInterruptionDoesNotWaitForAStart() throws {
        try write("", to: binaries.appending("slow"))
        let ended = try recover()
        #expect(ended.status == 130, "\(ended.errors)")
        #expect(ended.errors.contains("the start of notes.service was not waited for"), "\(ended.errors)")
        try run("rm", [Word(binaries.appending("slow"))])
        try write("", to: binaries.appending("active"))
        let next = try recover()
        #expect(next.outcome == "finished" && next.errors == "", "\(next.output)\(next.errors)")
        #expect(next.objects.first?.string("text") == "running already: notes.service")
        #expect(try starts().count == 1 && Directory(places.group).names() == [])
    }

    @Test(.enabled(if: geteuid() == 0, "needs root")) func aDryRunListsNothingThatMayNotBeStarted() throws {
        try run("chown", ["1234", Word(places.group.pushing(".groupstore/app-stopped.json"))])
        let planned = try recover("--dry-run")
        #expect(!planned.objects.contains { $0.type == "stopped" }, "\(planned.output)")
        let note = planned.objects.first { $0.type == "note" }?.string("text")
        #expect(note == "notes.service is not started by the word of user 1234")
        let refused = try recover()
        #expect(refused.status == 74 && refused.errors.contains(note ?? "?"), "\(refused.errors)")
        #expect(try starts() == [])
    }

    @Test func whatDoesNotStartStaysRecordedUntilItDoesOrIsDropped() throws {
        try write("", to: binaries.appending("broken"))
        for _ in 0..<2 {
            let failed = try recover()
            #expect(failed.status == 74 && failed.errors.contains("Job failed."), "\(failed.errors)")
            #expect(failed.summary.object("error")?.string("code") == "not_started")
            let remedy = try #require(failed.summary.object("error")?.string("hint"))
            #expect(remedy.hasSuffix("groupstore recover --leave-stopped \(places.group)"))
        }
        let removed = try groupstore(
            "group", "remove", "group.com.example.tests", "--directory", Word(places.group), environment: environment)
        #expect(removed.status == 75, "\(removed.errors)")
        #expect(try recover("--leave-stopped").outcome == "finished")
        #expect(try recover().outcome == "nothing_to_do")
        #expect(try starts().count == 2)
    }
}
