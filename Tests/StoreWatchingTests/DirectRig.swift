import AgentProtocol
import DirectoryWatching
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreWatching

/// Stores that this process watches directly, and programs that write them.
final class DirectRig {
    struct Found {
        let number: Int
        let event: StoreEvent
        let token: DirectToken
    }

    let scratch: TemporaryDirectory
    let store: FilePath
    private let loop: FeedLoop
    private let events: Events
    private let feed: DirectFeed

    private final class Events {
        var found: [Found] = []
    }

    init(_ scratch: TemporaryDirectory? = nil, source: (any EventSource)? = nil) throws {
        self.scratch = try scratch ?? TemporaryDirectory()
        store = self.scratch.path.appending("Notes.sqlite")
        loop = FeedLoop(source: try source ?? InotifySource())
        let events = Events()
        self.events = events
        feed = DirectFeed(loop: loop, log: .none) {
            number, event, token in events.found.append(Found(number: number, event: event, token: token))
        }
    }

    deinit {
        feed.close()
        loop.close()
    }

    /// Watches the paths, and returns their numbers once everything that happens is reported.
    @discardableResult
    func watch(_ paths: FilePath...) throws -> [Int] {
        var isReady = false
        let numbers = try feed.add(paths) { _ in isReady = true }
        while !isReady { _ = try feed.step(loop) }
        return numbers
    }

    /// Returns the events until `isLast` says so.
    func events(within limit: Duration = .ample, until isLast: (Found) -> Bool) throws -> [Found] {
        let deadline = Deadline(after: limit)
        while !events.found.contains(where: isLast) {
            guard !deadline.hasPassed else { throw Unexpected("only \(events.found.map(\.event))") }
            _ = try feed.step(loop, timeout: deadline.remaining)
        }
        defer { events.found = [] }
        return events.found
    }

    /// Returns the next event, and drops those that come with it.
    @discardableResult
    func next() throws -> Found { try #require(try events { _ in true }.first) }

    /// Handles what happens within the time, and returns the events.
    func settle(_ time: Duration = .milliseconds(100)) throws -> [Found] {
        let deadline = Deadline(after: time)
        while !deadline.hasPassed { _ = try feed.step(loop, timeout: deadline.remaining) }
        defer { events.found = [] }
        return events.found
    }

    func token(_ number: Int = 0) -> DirectToken { feed.token(of: number) }

    @discardableResult
    func sqlite(_ sql: String, _ path: FilePath? = nil) throws -> String {
        let done = try run("sqlite3", [Word(path ?? store), Word(sql)])
        guard done.status == 0 else { throw Unexpected("sqlite3: \(done.errors)") }
        return done.output
    }
}
