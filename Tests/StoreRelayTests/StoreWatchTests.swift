import Glibc
import LinuxSystem
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// How a publisher notices that its store has changed.
@Suite(.ownThreads) struct StoreWatchTests {
    private struct Other: Error {}

    private let directory: TemporaryDirectory
    private let writer: StoreWriter
    private let mailbox = PublisherMailbox()
    private let watch: StoreWatch

    init() throws {
        directory = try TemporaryDirectory()
        let path = directory.path.appending("home.sqlite")
        writer = try StoreWriter(path, creating: true)
        try writer.execute(script: "PRAGMA journal_mode = WAL; CREATE TABLE Note (id INTEGER PRIMARY KEY)")
        watch = try StoreWatch(path, mailbox)
    }

    @Test func hidesNoError() {
        #expect(StoreWatch.failure(Other()).errorCode == "not_watched")
        #expect(StoreWatch.failure(RelayError.noHome(stream: "GS_N")).errorCode == "no_home")
    }

    @Test func aPausedWatchCostsNoEventAndSaysAfterwardsThatTheStoreMayHaveChanged() throws {
        #expect(mailbox.take(within: .ample).storeChanged)
        for _ in 1...3 {
            try expectNotice { try writer.execute("INSERT INTO Note DEFAULT VALUES") }
            watch.pause()
            try #require(try isWatched(directory.path, until: false))
            _ = mailbox.take(within: .zero)
            for _ in 1...10 { try writer.execute("INSERT INTO Note DEFAULT VALUES") }
            #expect(!mailbox.take(within: .zero).storeChanged)
            watch.resume()
            #expect(mailbox.take(within: .ample).storeChanged)
        }
    }

    /// Also what was paused and resumed while it began.
    @Test func isWatchedAfterManyPauses() throws {
        for _ in 1...100 {
            watch.pause()
            watch.resume()
            #expect(mailbox.take(within: .ample).storeChanged)
        }
        for _ in 1...5 { try expectNotice { try writer.execute("INSERT INTO Note DEFAULT VALUES") } }
    }

    /// Writes, and waits until the publisher hears it.
    private func expectNotice(_ write: () throws -> Void) throws {
        _ = mailbox.take(within: .zero)
        try write()
        #expect(mailbox.take(within: .ample).storeChanged)
    }

    /// Waits until a thread of this process watches the directory, or none does. Returns false if that takes too long.
    private func isWatched(_ path: FilePath, until isWatched: Bool) throws -> Bool {
        let status = try #require(FileStatus(following: path))
        let text = "inotify wd:"
        let inode = " ino:\(String(status.identity.inode, radix: 16)) "
        let deadline = Deadline(after: .ample)
        while !deadline.hasPassed {
            // The watching thread has a table of descriptors of its own.
            let found = try run("sh", ["-c", "cat /proc/\(getpid())/task/*/fdinfo/* 2>/dev/null"]).output
            let lines = found.split(separator: "\n").filter { $0.hasPrefix(text) && $0.contains(inode) }
            if lines.isEmpty != isWatched { return true }
        }
        return false
    }
}
