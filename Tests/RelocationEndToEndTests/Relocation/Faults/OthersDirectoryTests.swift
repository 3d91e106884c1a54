import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of the files that one user's command leaves in another user's directory.
@Suite(.ownThreads, .enabled(if: geteuid() == 0, "needs root, to become other users"))
struct OthersDirectoryTests {
    private static let owner = "65534"
    private static let reader = "65533"
    private static let shared = "65530"

    private func groupstore(_ places: Places, as user: String, _ words: [Word]) throws -> FinishedProcess {
        let program = places.scratch("groupstore")
        if FileStatus(following: program) == nil { try run("cp", [Programs.groupstore, Word(program)]) }
        return try run(
            "setpriv",
            [Word("--reuid=\(user)"), Word("--regid=\(user)"), Word("--groups=\(Self.shared)"), Word(program)] + words,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    /// A package's script runs as root. The group's owner must own the records and the lock that it creates.
    @Test(arguments: Places.FileSystem.allCases, ["delete", "archive", "symlink"])
    func filesThatRootCreatesBelongToTheDirectorysOwner(_ fileSystem: Places.FileSystem, _ retirement: String) throws {
        let places = try Places(fileSystem)
        for name in ["a", "b"] { try makeStore(places.legacy.appending("\(name).sqlite"), rows: 3) }
        try makeStore(places.group.appending("a.sqlite"), rows: 2)
        try run("chown", ["-R", "\(Self.owner):\(Self.shared)", Word(places.legacy), Word(places.group)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        try run(
            Programs.groupstore,
            [
                "relocate", Word(places.legacy.appending("a.sqlite")), Word(places.group), "--retire", Word(retirement),
                "--on-conflict", "keep-legacy",
            ], environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(try noteCount(places.group.appending("a.sqlite")) == 3)
        let roots = try run(
            "find",
            [
                Word(places.group), Word(places.legacy), "(", "!", "-uid", Word(Self.owner), "-o", "!", "-gid",
                Word(Self.shared), ")",
            ])
        #expect(roots.output.isEmpty, "\(roots.output)")
        let (old, new) = (places.legacy.appending("b.sqlite"), places.group.appending("b.sqlite"))
        for words: [Word] in [
            ["relocate", Word(old), Word(places.group)], ["relocate", "--undo", Word(old), Word(places.group)],
            ["relocate", Word(old), Word(places.group)], ["history", "enable", Word(new)],
            ["recover", Word(places.group)],
        ] {
            let done = try groupstore(places, as: Self.owner, words)
            #expect(done.status == 0, "\(words): \(done.errors)")
        }
    }

    /// A group that two users share by its directory's group, and one that they share by the sticky bit.
    @Test(arguments: ["0770", "1777"]) func recordsAreSharedLikeTheGroup(_ mode: String) throws {
        let places = try Places()
        let (first, second) = (places.scratch("first"), places.scratch("second"))
        for (home, user) in [(first, Self.owner), (second, Self.reader)] {
            try run("mkdir", [Word(home)])
            try makeStore(home.appending("\(user).sqlite"), rows: 3)
            try run("chown", ["-R", "\(user):\(user)", Word(home)])
        }
        try run("chown", ["\(Self.owner):\(Self.shared)", Word(places.group)])
        try run("chmod", [Word(mode), Word(places.group)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        for (home, user) in [(first, Self.owner), (second, Self.reader)] {
            let done = try groupstore(
                places, as: user,
                ["relocate", Word(home.appending("\(user).sqlite")), Word(places.group), "--retire", "archive"])
            #expect(done.status == 0, "\(user): \(done.errors)")
        }
        let own = try #require(FileStatus(following: places.group.appending(".groupstore")))
        #expect(String(own.permissions, radix: 8) == mode.trimmingPrefix("0") && "\(own.group)" == Self.shared)
        let archive = try #require(FileStatus(following: places.group.pushing(".groupstore/archive")))
        #expect(String(archive.permissions, radix: 8) == mode.trimmingPrefix("0"))
    }

    /// The store would be where its owner can't open it, or can't make its journal.
    @Test(arguments: [("0755", "0700", "rwx"), ("0755", "0755", "rwx"), ("0700", "0777", "x")])
    func rootDoesNotLockTheOwnerOut(_ above: String, _ own: String, _ rights: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 3)
        let (closed, group) = (places.scratch("closed"), places.scratch("closed").appending("group"))
        try run("mkdir", ["-p", Word(group)])
        try run("chown", ["-R", "\(Self.owner):\(Self.owner)", Word(places.legacy)])
        try run("chmod", ["755", Word(places.scratch("."))])
        try run("chmod", [Word(above), Word(closed)])
        try run("chmod", [Word(own), Word(group)])
        func relocate() throws -> FinishedProcess {
            try run(
                Programs.groupstore, ["relocate", Word(store.path), Word(group), "--json"],
                environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        }
        let refused = try relocate()
        let error = try #require(refused.summary.object("error"))
        #expect(refused.status == 77 && error.string("code") == "owner_locked_out", "\(refused.output)")
        let place = rights == "x" ? closed : group
        let hint = "allow it (package acl): setfacl -m u:\(Self.owner):\(rights) \(place)"
        #expect(error.string("hint") == hint, "\(refused.output)")
        #expect(try noteCount(store.path) == 3)
        #expect(FileStatus(following: group.appending("Notes.sqlite")) == nil)
        try run("chmod", ["777", Word(place)])
        #expect(try relocate().outcome == "relocated")
    }

    @Test func rootDoesNotMoveADirectoryOutOfItsOwnersReach() throws {
        let places = try Places()
        let (app, closed) = (places.legacy.appending("app"), places.scratch("closed"))
        try run("mkdir", [Word(app), Word(closed)])
        try makeStore(app.appending("Notes.sqlite"), rows: 3)
        // The directory is root's, and a store in it is not.
        try run("chown", [Word(Self.owner), Word(app.appending("Notes.sqlite"))])
        try run("chmod", ["755", Word(places.scratch("."))])
        try run("chmod", ["700", Word(closed)])
        func move(_ options: [Word]) throws -> FinishedProcess {
            try EndToEndSupport.groupstore("move-app", Word(app), Word(closed), "--json", options: options)
        }
        for options: [Word] in [["--dry-run"], []] {
            let refused = try move(options)
            let error = try #require(refused.summary.object("error"))
            #expect(refused.status == 77 && error.string("code") == "owner_locked_out", "\(refused.output)")
            #expect(error.string("hint") == "allow it (package acl): setfacl -m u:\(Self.owner):x \(closed)")
        }
        #expect(try Directory(closed).names() == [])
        try run("chmod", ["711", Word(closed)])
        #expect(try move([]).outcome == "moved")
    }

    @Test func aGroupIsMadeForAnotherUser() throws {
        let places = try Places()
        let group = places.scratch("net")
        func create(_ options: Word...) throws -> FinishedProcess {
            try EndToEndSupport.groupstore(
                "group", "create", "group.test.net", "--directory", Word(group), "--json", options: options)
        }
        try run("chmod", ["700", Word(places.scratch("."))])
        let refused = try create("--owner", Word(Self.owner))
        #expect(refused.status == 77 && FileStatus(following: group) == nil, "\(refused.output)")
        try run("chmod", ["755", Word(places.scratch("."))])
        for outcome in ["created", "exists"] {
            let made = try create("--owner", "\(Self.owner):\(Self.shared)", "--mode", "2770")
            #expect(made.status == 0 && made.outcome == outcome, "\(made.output)\(made.errors)")
        }
        let status = try #require(FileStatus(following: group))
        #expect(status.owner == uid_t(Self.owner) && "\(status.group)" == Self.shared)
        #expect(String(status.permissions, radix: 8) == "2770")
        let other = try create("--mode", "0700")
        #expect(other.status == 73, "\(other.output)\(other.errors)")
        #expect(try create("--mode", "0077").status == 64)
        #expect(try create("--owner", "no-such-user").status == 64)
        // chown(2) takes the number for "unchanged".
        for owner: Word in ["4294967295", "\(Self.owner):4294967295"] {
            let bad = try create("--owner", owner)
            #expect(bad.status == 64, "\(bad.output)\(bad.errors)")
        }
    }

    /// Only root may give a directory away: nothing is made before that is known.
    @Test(arguments: [reader, "\(owner):\(reader)", ":\(reader)"])
    func anOrdinaryUserMakesNoGroupForSomebodyElse(_ recipient: String) throws {
        let places = try Places()
        let (home, group) = (places.scratch("home"), places.scratch("home").pushing("data/net"))
        try run("mkdir", [Word(home)])
        try run("chown", [Word(Self.owner), Word(home)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(home)])
        for _ in 0..<2 {
            let refused = try groupstore(
                places, as: Self.owner,
                ["group", "create", "group.test.net", "--directory", Word(group), "--owner", Word(recipient), "--json"])
            #expect(refused.status == 77, "\(refused.output)\(refused.errors)")
            #expect(refused.summary.object("error")?.string("hint")?.contains("as root") == true, "\(refused.output)")
            #expect(try Directory(home).names() == [])
        }
        let made = try groupstore(
            places, as: Self.owner,
            ["group", "create", "group.test.net", "--directory", Word(group), "--owner", ":\(Self.shared)", "--json"])
        #expect(made.status == 0 && FileStatus(following: group)?.group == gid_t(Self.shared), "\(made.errors)")
    }

    /// The entry of a directory's owner counts, whatever else its access control list grants.
    @Test(
        arguments: [("0500", "0755", "chmod u+rwx"), ("0755", "0600", "chmod u+x"), ("0000", "0755", "chmod u+rwx")])
    func theRemedyForTheOwnersOwnDirectoryRuns(_ own: String, _ above: String, _ command: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 3)
        let (closed, group) = (places.scratch("closed"), places.scratch("closed").appending("group"))
        try run("mkdir", ["-p", Word(group)])
        try run("chown", ["-R", "\(Self.owner):\(Self.owner)", Word(places.legacy), Word(closed)])
        try run("chmod", ["755", Word(places.scratch("."))])
        try run("chmod", [Word(own), Word(group)])
        try run("chmod", [Word(above), Word(closed)])
        let relocate: [Word] = ["relocate", Word(store.path), Word(group), "--json"]
        let refused = try EndToEndSupport.groupstore(options: relocate)
        #expect(refused.status == 77, "\(refused.output)\(refused.errors)")
        let hint = try #require(refused.summary.object("error")?.string("hint"))
        #expect(hint == "allow it: \(command) \(own == "0755" ? closed : group)", "\(hint)")
        try run("sh", ["-c", Word(String(hint.dropFirst("allow it: ".count)))])
        #expect(try EndToEndSupport.groupstore(options: relocate).outcome == "relocated")
        let undone = try groupstore(places, as: Self.owner, ["relocate", "--undo", Word(store.path), Word(group)])
        #expect(undone.status == 0, "\(undone.errors)")
    }

    @Test func theRemedyForTheOwnersOwnRecordsRuns() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 3)
        let records = places.group.appending(".groupstore")
        try run("mkdir", ["-p", Word(records.appending("receipts"))])
        try run("touch", [Word(records.appending("lock"))])
        try run("chown", ["-R", "\(Self.owner):\(Self.owner)", Word(places.legacy), Word(places.group)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        try run("chmod", ["500", Word(records), Word(records.appending("receipts"))])
        let relocate: [Word] = ["relocate", Word(store.path), Word(places.group), "--json"]
        let refused = try EndToEndSupport.groupstore(options: relocate)
        #expect(refused.status == 77, "\(refused.output)\(refused.errors)")
        let hint = try #require(refused.summary.object("error")?.string("hint"))
        let command = try #require(hint.split(separator: ": ", maxSplits: 1).last)
        try run("sh", ["-c", Word(String(command))])
        #expect(try EndToEndSupport.groupstore(options: relocate).outcome == "relocated")
    }

    @Test func doctorNamesAnOwnerWhoIsKeptOut() throws {
        let places = try Places()
        let store = try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        try run("chown", [Word(Self.owner), Word(store.path)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        try run("chmod", ["711", Word(places.group)])
        let found = try EndToEndSupport.groupstore("doctor", Word(places.group), "--json")
        let finding = try #require(found.objects.first { $0.string("check") == "owner" }, "\(found.output)")
        #expect(finding.string("code") == "owner_locked_out")
        #expect(finding.string("remedy")?.hasSuffix("setfacl -m u:\(Self.owner):rwx \(places.group)") == true)
        try run("chmod", ["777", Word(places.group)])
        let after = try EndToEndSupport.groupstore("doctor", Word(places.group), "--json")
        #expect(!after.objects.contains { $0.string("check") == "owner" })
    }

    @Test func doctorNamesAnOwnerWhoIsKeptOutOfAMovedDirectory() throws {
        let places = try Places()
        let app = places.legacy.appending("app")
        try run("mkdir", [Word(app)])
        try makeStore(app.appending("Notes.sqlite"), rows: 3)
        try run("chown", ["-R", Word(Self.owner), Word(app)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        try run("chmod", ["777", Word(places.group), Word(places.legacy)])
        let moved = places.group.appending("moved")
        #expect(try EndToEndSupport.groupstore("move-app", Word(app), Word(moved)).status == 0)
        for (mode, isKeptOut) in [("777", false), ("700", true)] as [(Word, Bool)] {
            try run("chmod", [mode, Word(places.group)])
            let found = try EndToEndSupport.groupstore("doctor", Word(places.group), "--json")
            let findings = found.objects.filter { $0.string("check") == "owner" }
            #expect(findings.map { $0.string("code") } == (isKeptOut ? ["owner_locked_out"] : []), "\(found.output)")
            let isNamed = findings.first?.string("message")?.contains("\(moved)/Notes.sqlite") == true
            #expect(isNamed == isKeptOut, "\(found.output)")
        }
    }

    /// inotify needs the right to read the directory, which opening a store in it doesn't.
    @Test(.enabled(if: access("/usr/bin/setfacl", X_OK) == 0, "needs setfacl"))
    func anUnwatchableDirectoryIsReportedOnceWithARemedy() throws {
        let places = try Places()
        let store = try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        try run("chmod", ["644", Word(store.path)])
        try run("chmod", ["711", Word(places.group)])
        let watch: [Word] = ["watch", "--direct", "--timeout", "0.2", Word(store.path)]
        let refused = try groupstore(places, as: Self.owner, watch)
        #expect(refused.status == 74, "\(refused.errors)")
        #expect(refused.errors.split(separator: "\n").count == 1, "\(refused.errors)")
        #expect(refused.errors.contains("can't be watched"))
        #expect(refused.errors.contains("(see which limit or permission: groupstore doctor \(places.group))"))
        let doctor = try groupstore(places, as: Self.owner, ["doctor", Word(places.group), "--json"])
        let finding = doctor.objects.first { $0.string("verdict") == "problem" }
        let command = "setfacl -m u:\(Self.owner):rx \(places.group)"
        #expect(finding?.string("remedy")?.hasSuffix(command) == true, "\(doctor.output)")
        try run("sh", ["-c", Word(command)])
        #expect(try groupstore(places, as: Self.owner, watch).status == 75)
    }

    /// The remedy, as printed, lets the owner do everything there, also with the records that root makes. Where root
    /// has made them already, the remedy names them too.
    @Test(.enabled(if: access("/usr/bin/setfacl", X_OK) == 0, "needs setfacl"), arguments: [false, true])
    func aLockedOutOwnerCanDoEverythingAfterTheRemedy(_ hasRecords: Bool) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 3)
        try run("chown", ["-R", "\(Self.owner):\(Self.owner)", Word(places.legacy)])
        try run("chmod", ["755", Word(places.scratch(".")), Word(places.group.removingLastComponent())])
        try run("chmod", ["755", Word(places.group)])
        if hasRecords {
            let other = try makeStore(places.scratch("Other.sqlite"), rows: 1)
            #expect(
                try EndToEndSupport.groupstore("relocate", Word(other.path), Word(places.group), "--retire", "archive")
                    .status == 0)
        }
        let relocate: [Word] = ["relocate", Word(store.path), Word(places.group)]
        let refused = try EndToEndSupport.groupstore(options: relocate + ["--json"])
        #expect(refused.status == 77, "\(refused.output)")
        let hint = try #require(refused.summary.object("error")?.string("hint"))
        let prefix = "allow it (package acl): "
        #expect(hint.hasPrefix(prefix) && hint.contains(".groupstore") == hasRecords, "\(hint)")
        try run("sh", ["-c", Word(String(hint.dropFirst(prefix.count)))])
        let done = try EndToEndSupport.groupstore(options: relocate)
        #expect(done.status == 0, "\(done.errors)")
        let doctor = try EndToEndSupport.groupstore("doctor", Word(places.group), "--json")
        #expect(!doctor.objects.contains { $0.string("check") == "owner" }, "\(doctor.output)")
        for words: [Word] in [
            relocate + ["--undo"], relocate + ["--retire", "archive"], ["archive", "list", Word(places.group)],
            ["archive", "purge", Word(places.group), "--older-than", "0s"], ["recover", Word(places.group)],
            ["history", "enable", Word(places.group.appending("Notes.sqlite"))],
        ] {
            let own = try groupstore(places, as: Self.owner, words)
            #expect(own.status == 0, "\(words): \(own.output)\(own.errors)")
        }
        let watch = try groupstore(
            places, as: Self.owner,
            ["watch", "--direct", "--timeout", "0.2", Word(places.group.appending("Notes.sqlite"))])
        #expect(watch.status == 75, "\(watch.errors)")
        // Nobody else has gained anything.
        let stranger = try groupstore(places, as: Self.reader, relocate + ["--undo"])
        #expect(stranger.status != 0)
    }

    /// Root doesn't change the owner of a file that already exists.
    @Test func rootKeepsTheOwnerOfExistingFiles() throws {
        let places = try Places()
        try run("chown", [Word(Self.owner), Word(places.group)])
        let directory = try Directory(places.group)
        try write("root's", to: places.group.appending("old"))
        _ = try directory.openOwn("old", flags: O_RDWR | O_CREAT, mode: 0o600)
        _ = try directory.openOwn("new", flags: O_RDWR | O_CREAT, mode: 0o600)
        #expect(try directory.status("old")?.owner == 0)
        #expect(try directory.status("new")?.owner == uid_t(Self.owner))
    }

    /// Another user can't write to a log, or to its index, that this user's command leaves behind.
    @Test(
        arguments: ["2770", "1777"],
        [
            ["history", "enable"], ["history", "purge", "--older-than", "1s"], ["history", "disable"], ["changes"],
            ["history", "show"], ["inspect"], ["history", "acknowledge", "--subscriber", "s", "--token", "h1.0.0.0"],
        ]) func aRefusedCommandLeavesNothing(_ mode: String, _ command: [String]) throws
    {
        // The store is read-only or writable for this user. A writable store has no history, so the commands have
        // nothing to do.
        for (hasHistory, permissions) in [(true, "644"), (false, "644"), (false, "666")] {
            // `history enable` succeeds on a writable store.
            if permissions == "666", command == ["history", "enable"] { continue }
            let places = try Places()
            let store = places.group.appending("Notes.sqlite")
            try sqlite(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
            if hasHistory {
                #expect(try EndToEndSupport.groupstore("history", "enable", Word(store)).status == 0)
                try run("rm", ["-rf", Word(places.group.appending(".groupstore"))])
            }
            try run("chown", [Word("\(Self.owner):\(Self.shared)"), Word(places.group), Word(store)])
            try run("chmod", [Word(permissions), Word(store)])
            try run("chmod", [Word(mode), Word(places.group)])
            try run("chmod", ["755", Word(places.scratch("."))])
            try run("rm", ["-f", Word(store.string + "-wal"), Word(store.string + "-shm")])
            _ = try groupstore(places, as: Self.reader, command.map { Word($0) } + [Word(store)])
            let left = try Directory(places.group).names().filter { $0 != ".groupstore" }
            #expect(left == ["Notes.sqlite"], "\(command) \(permissions): \(left)")
        }
    }
}
