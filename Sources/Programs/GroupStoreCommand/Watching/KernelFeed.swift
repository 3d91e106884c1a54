import AgentProtocol
import CommandSupport
import DirectoryWatching
import Glibc
import GroupStore
import LinuxSystem
import StoreWatching
import SystemPackage

/// The events of stores that this process follows by itself, without an agent.
final class KernelFeed: WatchedFeed {
    // One thread uses all of it. What is read between a commit and its line is not checked for overlapping accesses.
    @exclusivity(unchecked) private(set) var stores: [WatchedStore] = []
    var openingType: String { "watching" }
    /// True if nothing is done with a change but to print its line: then it is written here.
    var writesLines = false
    private let loop: FeedLoop
    private var feed: DirectFeed?
    private let tables: TableFilter?
    /// The rows of each store, if they are told from its pages.
    private var rows: [DirectRows] = []
    @exclusivity(unchecked) private var lines: [ChangeLine] = []
    /// The events that are known before anybody asks for events.
    private var missed: [FeedEvent] = []
    /// The consumer, while it waits.
    @exclusivity(unchecked) private var body: ((FeedEvent) throws -> Void)?
    @exclusivity(unchecked) private var hasReceived = false
    @exclusivity(unchecked) private var failure: (any Error)?

    /// Begins to follow the stores.
    ///
    /// - Parameters:
    ///   - paths: Absolute paths, at which there need not be stores yet.
    ///   - token: The position after which to begin, if there is one store.
    ///   - tables: Leaves out changes that are known to affect only other tables.
    ///   - rows: Returns what tells the rows of each store from its pages. It is called when each later change will be
    ///     noticed. Nil if nothing does.
    ///
    /// Throws `SystemError`, `DirectFeedError` and the error of `rows`.
    convenience init(
        _ paths: [FilePath], since token: String?, tables: TableFilter?, rows: ((FilePath) throws -> DirectRows)? = nil
    ) throws {
        let stores = paths.map { WatchedStore(name: "\(PrintablePath($0))", bytes: $0.bytes, path: $0, token: "") }
        try self.init(stores, since: token, tables: tables, rows: rows)
    }

    /// Begins to follow stores that another feed has followed, and reports a reset of each: changes since then may have
    /// been missed.
    convenience init(takingOver stores: [WatchedStore], tables: TableFilter?) throws {
        let tokens = stores.map(\.token)
        try self.init(stores, since: nil, tables: tables, rows: nil)
        for (number, store) in stores.enumerated() {
            guard let feed else { return }
            missed.append(FeedEvent(store, .reset(.epoch), feed.token(of: number)))
            // Nobody was told of it yet.
            store.token = tokens[number]
        }
    }

    private init(
        _ watched: [WatchedStore], since token: String?, tables: TableFilter?,
        rows: ((FilePath) throws -> DirectRows)?
    ) throws {
        let paths = watched.map(\.path)
        self.tables = tables
        reduceTimerSlack()
        ResourceLimit.raiseDescriptors()
        loop = FeedLoop(source: try InotifySource())
        // What can't be followed from the start is the error of `add`, and printed once.
        let held = HeldMessages()
        let log = FeedLog { level, message in
            if level != .notice { held.print(message) }
        }
        let feed = DirectFeed(loop: loop, log: log) { [unowned self] number, event, token in
            receive(event, of: number, token)
        }
        self.feed = feed
        var isReady = false
        do {
            try afterRelocations { _ = try feed.add(paths) { _ in isReady = true } }
        } catch {
            held.release(except: (error as? DirectFeedError)?.message)
            throw error
        }
        held.release()
        while !isReady, try feed.step(loop) {}
        if let rows { self.rows = try paths.indices.map { try rows(feed.path(of: $0) ?? paths[$0]) } }
        for (number, store) in watched.enumerated() {
            store.path = feed.path(of: number) ?? store.path
            store.position = feed.token(of: number)
            stores.append(store)
            lines.append(ChangeLine(store: store.bytes, tokenStart: self.rows.isEmpty ? DirectToken.start : ""))
        }
        if !self.rows.isEmpty {
            for (store, rows) in zip(stores, self.rows) {
                store.token = rows.token
                if let reason = rows.discontinuity {
                    // Nobody was told of it yet.
                    store.token = token ?? rows.token
                    missed.append(FeedEvent(store, .reset(reason), token: rows.token))
                }
            }
        } else if let token, let store = stores.first {
            let now = feed.token(of: 0)
            missed += events(since: token, until: now).map { FeedEvent(store, $0, now) }
            // Nobody was told of these events yet.
            if !missed.isEmpty { store.token = token }
        }
        try stopOnInterruption()
    }

    private func events(since token: String, until now: DirectToken) -> [StoreEvent] {
        guard let former = DirectToken(token) else { return [.reset(.epoch)] }
        return former.event(until: now).map { [$0] } ?? []
    }

    /// A signal doesn't end the wait for file events, so another thread waits for it.
    private func stopOnInterruption() throws {
        _ = try SystemThread(name: "gs-signals") { [loop] in
            var request = pollfd(fd: Interruption.descriptor, events: Int16(POLLIN), revents: 0)
            _ = try? retrying("poll") { poll(&request, 1, -1) }
            loop.wake()
        }
    }

    func receive(until deadline: Deadline, _ body: (FeedEvent) throws -> Void) throws -> Bool {
        try withoutActuallyEscaping(body) { body in
            self.body = body
            defer { self.body = nil }
            hasReceived = !missed.isEmpty
            let events = missed
            missed = []
            for event in events {
                event.store.token = event.token ?? event.store.token
                try body(event)
            }
            for (number, rows) in rows.enumerated() where rows.hasSteps {
                try rows.passOnSteps { try passOn($0, of: number, rows) }
            }
            while !hasReceived {
                if Interruption.isRequested { throw AgentConnectionError.interrupted }
                if deadline.hasPassed { return false }
                guard try feed?.step(loop, timeout: timeout(until: deadline)) == true else { return false }
                try retryRows()
                if let failure { throw failure }
            }
            return true
        }
    }

    /// Returns the time until the deadline, or until a store is read again that couldn't be read.
    private func timeout(until deadline: Deadline) -> Duration? {
        let retry = rows.compactMap(\.retryAt).min().map { max(.zero, ContinuousClock.now.duration(to: $0)) }
        return [deadline.remaining, retry].compactMap { $0 }.min()
    }

    private func retryRows() throws {
        for (number, rows) in rows.enumerated() {
            rows.recordFileEvent()
            if let retryAt = rows.retryAt, retryAt <= .now { try rows.retry { try passOn($0, of: number, rows) } }
        }
    }

    /// Passes on an event whose rows were printed, or a bookmark.
    private func passOn(_ event: StoreEvent?, of number: Int, _ rows: DirectRows) throws {
        let (store, token) = (stores[number], rows.token)
        store.token = token
        guard let event else {
            try body?(FeedEvent(store, bookmark: token))
            return
        }
        hasReceived = true
        try body?(FeedEvent(store, event, token: token, line: line(of: event, number, token, after: rows.rest)))
    }

    /// Returns the line of an event behind the last lines of its rows; nil if there are none.
    private func line(of event: StoreEvent, _ number: Int, _ token: String, after rows: [UInt8]) -> [UInt8]? {
        if rows.isEmpty { return nil }
        if case .change(let tables) = event, let line = lines[number].bytes(tables, token: { $0 += token.utf8 }) {
            return rows + line
        }
        return rows + event.json(store: stores[number].bytes, token: token).text.utf8 + [0x0A]
    }

    private func receive(_ event: StoreEvent, of number: Int, _ token: DirectToken) {
        guard stores.indices.contains(number), failure == nil else { return }
        let store = stores[number]
        if rows.indices.contains(number) {
            let rows = self.rows[number]
            if let path = feed?.path(of: number) { store.path = path }
            do {
                try rows.record(event) { try passOn($0, of: number, rows) }
            } catch {
                failure = error
            }
            return
        }
        store.position = token
        var line: [UInt8]?
        if case .change(let changed) = event {
            if let tables, !tables.admits(changed) { return }
            line = lines[number].bytes(changed) { token.writePosition(to: &$0) }
        } else if let path = feed?.path(of: number) {
            store.path = path
        }
        if case .branchChange(let changed, pid: _) = event, let tables, !tables.admits(changed) { return }
        guard body != nil else { return missed.append(FeedEvent(store, event, token, line: line)) }
        hasReceived = true
        do {
            if writesLines, let line {
                Output.write(encoded: line[...])
                try Output.checkDelivered()
            } else {
                try body?(FeedEvent(store, event, token, line: line))
            }
        } catch {
            failure = error
        }
    }
}

/// Calls `body`, and again as long as it finds an empty directory in the place of a store: a relocation under way puts
/// one there. Throws the error of `body`.
func afterRelocations<Result>(_ body: () throws -> Result) throws -> Result {
    let deadline = Deadline(after: .seconds(5))
    while true {
        do {
            return try body()
        } catch DirectFeedError.notAStore(let path) {
            let isMoving = StorePlace(path) != nil && (try? Directory(path).names().isEmpty) != false
            guard isMoving, !deadline.hasPassed else { throw DirectFeedError.notAStore(path) }
            if Interruption.isRequested { throw AgentConnectionError.interrupted }
            pause(.milliseconds(10))
        }
    }
}
