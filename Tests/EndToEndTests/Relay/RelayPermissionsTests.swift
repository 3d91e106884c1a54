import AgentProtocol
import EndToEndSupport
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The permissions of `Samples/Relay/nats-server.conf` (Documentation/Security.md, "The relay"): enough for both
/// programs, and no more for anybody with their credentials.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"))
struct RelayPermissionsTests {
    /// The sample's accounts.
    private static func accounts() throws -> String {
        let path = String(decoding: Programs.source("Samples/Relay/nats-server.conf").bytes, as: UTF8.self)
        let text = try String(contentsOfFile: path, encoding: .utf8)
        let start = try #require(text.range(of: "\naccounts {"))
        #expect(!text.contains("allow_responses: true"))
        return text[start.lowerBound...]
            .replacingOccurrences(of: "$HOME_PASSWORD", with: "home-secret")
            .replacingOccurrences(of: "$FOLLOWER_PASSWORD", with: "follower-secret")
    }

    private func credentials(_ user: String, in hosts: RelayHosts) throws -> [Word] {
        let name = try #require(FilePath.Component(user + ".creds"))
        let path = hosts.path(name)
        let file = try Directory(path.removingLastComponent()).open(name, flags: O_WRONLY | O_CREAT, mode: 0o600)
        try file.write(Array("\(user):\(user)-secret\n".utf8), at: 0)
        return ["--creds", Word(path)]
    }

    @Test(arguments: NATSServer.programs) func areEnoughForBothPrograms(program: FilePath) throws {
        let hosts = try RelayHosts(program, configuration: Self.accounts())
        let (home, other) = (try credentials("home", in: hosts), try credentials("follower", in: hosts))
        var publisher = try hosts.publish(options: home)
        let follower = try hosts.follow(options: other)
        #expect(try hosts.areEqual(follower))
        try hosts.write("INSERT INTO Note VALUES (1, 'a row', zeroblob(2000000))")
        #expect(try hosts.areEqual(follower))
        // Another snapshot, over the connection of another home, which changes the stream's limits.
        #expect(try publisher.stop().status == 0)
        try sqlite(hosts.home, "CREATE TABLE Tag (name TEXT PRIMARY KEY) WITHOUT ROWID")
        #expect(try groupstore("history", "enable", Word(hosts.home)).status == 0)
        publisher = try hosts.publish(options: home + ["--max-age", "1d"])
        try hosts.write("INSERT INTO Tag VALUES ('a tag')")
        #expect(try hosts.areEqual(follower))
        let events = try follower.stop().objects
        #expect(events.contains { $0.type == "reset" && $0.string("reason") != "first" })
        #expect(try publisher.stop().status == 0)
        let log = try hosts.server.stop()
        #expect(!log.contains("iolation"), "\(log)")
    }

    /// Who may write to the group's directory can't lead a follower to another file.
    @Test(arguments: [".", ".groupstore"]) func aFollowerWritesThroughNoLink(place: String) throws {
        let hosts = try RelayHosts(NATSServer.programs[0])
        let publisher = try hosts.publish()
        let elsewhere = hosts.path("elsewhere")
        try Directory(elsewhere.removingLastComponent()).makeDirectory("elsewhere", mode: 0o700)
        try sqlite(elsewhere.appending("Other.sqlite"), "CREATE TABLE Other (x)")
        let group = try Directory(hosts.group)
        if place == "." {
            try group.makeSymbolicLink("Notes.sqlite", to: elsewhere.appending("Other.sqlite"))
            let done = try hosts.follow().process.wait()
            #expect(done.status == 65 && done.objects.last?.string("outcome") == "failed", "\(done.output)")
        } else {
            try group.makeSymbolicLink(".groupstore", to: elsewhere)
            let done = try hosts.follow().process.wait()
            #expect(done.status == 74 && done.summary.object("error")?.string("code") == "obstacle", "\(done.output)")
        }
        #expect(try Directory(elsewhere).names() == ["Other.sqlite"])
        #expect(try sqlite(elsewhere.appending("Other.sqlite"), "SELECT name FROM sqlite_schema") == "Other\n")
        #expect(try publisher.stop().status == 0)
    }

    /// What is permitted of the subjects that somebody tries.
    private func permitted(_ hosts: RelayHosts, _ user: String, _ verb: Word, _ subjects: [Word]) throws -> String {
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Adversary/relay/permissions.py"), "\(hosts.server.port)", Word("\(user)"),
                Word("\(user)-secret"), verb,
            ] + subjects, environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        #expect(done.status == 0, "\(done.errors)")
        return done.output
    }

    private static let api: [Word] = [
        "STREAM.CREATE.GS_Other", "STREAM.DELETE.GS_Notes", "STREAM.PURGE.GS_Notes", "STREAM.MSG.DELETE.GS_Notes",
        "STREAM.NAMES", "STREAM.LIST", "STREAM.SNAPSHOT.GS_Notes", "STREAM.RESTORE.GS_Notes", "INFO",
        "STREAM.INFO.GS_Other", "STREAM.MSG.GET.GS_Other", "DIRECT.GET.GS_Notes", "CONSUMER.NAMES.GS_Notes",
        "CONSUMER.LIST.GS_Notes", "CONSUMER.INFO.GS_Notes.x", "CONSUMER.CREATE.GS_Other",
        "CONSUMER.CREATE.GS_Notes.x", "CONSUMER.DURABLE.CREATE.GS_Notes.x", "CONSUMER.MSG.NEXT.GS_Other.x",
        "CONSUMER.DELETE.GS_Other.x", "CONSUMER.CREATE.GS_Notes", "CONSUMER.MSG.NEXT.GS_Notes.x",
        "CONSUMER.DELETE.GS_Notes.x",
    ].map { Word(stringLiteral: "$JS.API." + $0) }

    /// The broker answers wherever a request says, and doesn't ask whether its sender might publish there.
    @Test(arguments: NATSServer.programs) func noAnswerReachesAnythingButAFollower(program: FilePath) throws {
        let hosts = try RelayHosts(program, configuration: Self.accounts())
        let (home, other) = (try credentials("home", in: hosts), try credentials("follower", in: hosts))
        let publisher = try hosts.publish(options: home)
        let follower = try hosts.follow(options: other)
        #expect(try hosts.areEqual(follower))
        let done = try run(
            "python3", [Programs.source("Tests/Adversary/relay/replies.py"), "\(hosts.server.port)"],
            environment: ["PYTHONDONTWRITEBYTECODE": "1"])
        // The stream was created once, and has what it had before.
        #expect(done.status == 0 && done.output == "unchanged\n", "\(done.output)\(done.errors)")
        try hosts.write("INSERT INTO Note VALUES (1, 'a row', NULL)")
        #expect(try hosts.areEqual(follower))
        #expect(try follower.stop().status == 0)
        #expect(try publisher.stop().objects.allSatisfy { $0.type != "error" })
    }

    @Test(arguments: NATSServer.programs) func areNoMoreThanTheProgramsNeed(program: FilePath) throws {
        let hosts = try RelayHosts(program, configuration: Self.accounts())
        let follower = try permitted(
            hosts, "follower", "publish",
            Self.api + [
                "$JS.API.STREAM.CREATE.GS_Notes", "$JS.API.STREAM.UPDATE.GS_Notes", "$JS.API.STREAM.INFO.GS_Notes",
                "$JS.API.STREAM.MSG.GET.GS_Notes", "gs.Notes.api.STREAM.DELETE.GS_Notes",
                "gs.Notes.api.CONSUMER.CREATE.GS_Notes", "gs.Notes.changes", "gs.Notes.published", "gs.Notes.ack.third",
                "gs.Other.snapshot", "_INBOX.gs.Notes.home.x.1",
                "_INBOX.gs.Notes.follower.third.x.1", "$JS.ACK.GS_Notes.x.1.1.1.1.1",
            ])
        #expect(follower == "\n")
        let home = try permitted(
            hosts, "home", "publish",
            Self.api + [
                "gs.Notes.ack.other", "gs.Notes.snapshot", "gs.Other.changes",
                "_INBOX.gs.Notes.home.x.1", "_INBOX.gs.Other.follower.other.x.1", "_INBOX.x.1",
            ])
        #expect(home == "\n")
        let followerHears = try permitted(
            hosts, "follower", "subscribe",
            [
                "gs.Notes.changes", "gs.Notes.snapshot", "gs.Notes.ack.*", ">", "_INBOX.>", "_INBOX.gs.>", "$JS.>",
                "_INBOX.gs.Notes.home.>", "_INBOX.gs.Notes.follower.>", "_INBOX.gs.Notes.follower.third.>",
            ])
        #expect(followerHears == "\n")
        let homeHears = try permitted(
            hosts, "home", "subscribe",
            ["gs.Notes.changes", "gs.>", "gs.Other.snapshot", "_INBOX.>", "_INBOX.gs.Notes.follower.>", "$JS.>"])
        #expect(homeHears == "\n")
        // The tester sees what is permitted.
        #expect(try permitted(hosts, "follower", "publish", ["gs.Notes.ack.other"]) == "gs.Notes.ack.other\n")
    }
}
