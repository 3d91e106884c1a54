import AgentProtocol
import StoreWatching
import LinuxSystem
import Logging
import PersistentHistory
import Synchronization
import SystemPackage

/// Answers clients' queries about changed rows, and reads histories for subscriptions. A history is read through
/// SQLite, which the feeding process must not open a watched store with: a child process of the same program opens the
/// store, reads, and exits. It never holds a store that a relocation wants for longer than that.
///
/// There is one thread, started with the first query, and one child at a time.
package final class HistoryService: Sendable {
    struct Query: Sendable {
        let arguments: [[UInt8]]
        let id: JSONValue?
        /// The client's connection; nil for the agent's own maintenance.
        let connection: UInt64?
        let store: StoreAddress
        /// True if the child's lines are sent as they are, with the request's `id`.
        var isBatch = false
        /// Checked before the answer is sent: another file may have come to the store's name since.
        var mayRead: @Sendable () -> Bool = { true }
        /// What was asked; nil for maintenance.
        var operation: HistoryOperation?
    }

    enum Task: Sendable {
        case query(Query)
        /// A read of the store's history for its subscriptions.
        case round(StoreAddress)
        /// A read of the store's pages, so that its log of rows has each commit.
        case follow(StoreAddress)
    }

    struct State {
        var waiting: [Task] = []
        /// The stores whose round is queued.
        var scheduledRounds: Set<StoreAddress> = []
        var isStopping = false
        var purged: [StoreAddress: ContinuousClock.Instant] = [:]
        /// The stores whose history was outdated when it was last read.
        var outdated: Set<StoreAddress> = []
        var thread: SystemThread?
        /// The stores whose rows are told from their pages.
        var pages = PageRowsState()
    }

    let publisher: Publisher
    let configuration: CurrentConfiguration
    let states: FollowingStates
    let feed: FeedControl?
    let program: FilePath?
    let log: Logger
    let state = Mutex(State())
    /// Why the rows of stores can't be recorded or told from their pages now.
    package let rowProblems = RowProblems()
    private let work = MonotonicSemaphore()

    /// The maximum number of waiting queries; further ones are refused and the client asks again.
    private static let maximumWaiting = 256
    /// The time that one child may run.
    private static let timeout = Duration.seconds(30)
    /// The maximum bytes of earlier answers that a client hasn't taken.
    private static let maximumUnread = 8 << 20
    /// The number of rows in an answer to a query without a limit.
    private static let pageLength: Int64 = 256

    package init(
        publisher: Publisher, configuration: CurrentConfiguration, states: FollowingStates, feed: FeedControl?,
        program: FilePath?, log: Logger
    ) {
        self.feed = feed
        self.log = log
        self.publisher = publisher
        self.configuration = configuration
        self.states = states
        self.program = program
    }

    /// Queues a query; the service's thread answers it. The store's group is served.
    func perform(
        _ operation: HistoryOperation, id: JSONValue?, _ connection: UInt64, grant: FileGrant = .anything,
        mayRead: @escaping @Sendable () -> Bool = { true }
    ) {
        guard program != nil, let path = path(of: operation.store) else {
            return publisher.answer(connection, .failure(id: id, .noHistoryHere))
        }
        let query = Query(
            arguments: Self.command(Self.words(operation), path: path, grant: grant), id: id, connection: connection,
            store: operation.store, isBatch: operation.isBatch, mayRead: mayRead, operation: operation)
        publisher.expectAnswer(connection)
        if let refusal = enqueue(.query(query)) { answer(query, .failure(id: id, refusal)) }
    }

    /// Queues a task. Returns why it is refused; nil if it is queued.
    func enqueue(_ task: Task) -> WireError? {
        let refusal = state.withLock { state -> WireError? in
            if case .query = task, state.waiting.count >= Self.maximumWaiting { return .tooManyQueries }
            do throws(SystemError) {
                if state.thread == nil { state.thread = try SystemThread(name: "gs-history") { [self] in loop() } }
            } catch {
                return WireError(error)
            }
            state.waiting.append(task)
            return nil
        }
        if refusal == nil { work.signal() }
        return refusal
    }

    /// Stops the thread. Waiting queries are not answered.
    package func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            state.waiting = []
            return state.thread.take()
        }
        work.signal()
        _ = thread?.join(within: .seconds(1))
        closePageRows()
    }

    func path(of store: StoreAddress) -> FilePath? {
        guard let name = FilePath.Component(bytes: store.name) else { return nil }
        return configuration.value.group(store.group)?.directory.appending(name)
    }

    /// Returns a child's arguments. A user who may write to the group's directory must not redirect the child by a link
    /// to a file that only this process may write: the child opens only a regular file, and for a user with a grant to
    /// one file, only that file.
    static func command(_ words: [String], path: FilePath, grant: FileGrant = .anything) -> [[UInt8]] {
        let restriction =
            switch grant {
            case .anything: "--no-links"
            case .only(let file): "--only-file=\(file.device):\(file.inode)"
            // No file has that number.
            case .nothing: "--only-file=0:0"
            }
        return (["groupstore"] + words + [restriction, "--"]).map { Array($0.utf8) } + [path.bytes]
    }

    private static func words(_ operation: HistoryOperation) -> [String] {
        switch operation {
        case .changes(_, let since, let limit, let filter, let content):
            var words = ["changes", "--json", "--wire-lines", "--limit=\(limit ?? pageLength)"]
            if let since { words.append("--since=\(since)") }
            let lists = [
                ("tables", filter.tables), ("entities", filter.entities), ("operations", filter.operations),
                ("authors", filter.authors), ("except-authors", filter.exceptAuthors),
            ]
            for (name, values) in lists {
                if let values { words.append("--\(name)=\(EscapedNames.text(values))") }
            }
            if case .values(let schema) = content {
                words.append("--values")
                if let schema { words.append("--schema=\(schema)") }
            }
            return words
        case .acknowledge(_, let subscriber, let token):
            return ["history", "acknowledge", "--json", "--subscriber=\(subscriber)", "--token=\(token)"]
        }
    }

    // MARK: Maintenance

    /// Enables history for the stores that exist and whose configuration requires it.
    package func maintainAll() {
        followAllPages()
        for group in configuration.value.groups {
            guard let directory = try? Directory(group.directory) else { continue }
            for store in group.stores where store.history != nil {
                guard (try? directory.status(store.name.database))?.kind == .regular,
                    let address = StoreAddress(group: group.identifier.rawValue, name: store.name.database.bytes)
                else { continue }
                maintain(address)
            }
        }
    }

    /// Maintains the history of a store that came or whose schema changed, and purges old changes periodically. Follows
    /// the pages of a store without one, also while nobody subscribes: a later subscriber may ask for its commits.
    func receive(_ event: StoreEvent, of store: StoreAddress) {
        switch event {
        case .change, .reset, .relocated, .migrated: schedulePages(of: store)
        case .branchChange, .relocating, .progress, .abandoned, .hazard, .hazardOver: break
        }
        switch event {
        case .relocated, .migrated, .reset(.appeared), .reset(.replaced): maintain(store)
        case .change(let tables):
            if tables.names?.contains("sqlite_schema") == true || isPurgeDue(store) { maintain(store) }
        case .branchChange, .relocating, .progress, .abandoned, .hazard, .hazardOver, .reset: break
        }
    }

    /// Maintains a history that a read found outdated: a change whose tables are unknown may be one of the schema. Does
    /// so once until a read finds it updated: what makes an update fail may last.
    func updateOnce(_ store: StoreAddress, isOutdated: Bool) {
        let isNew = state.withLock { state in
            guard !isOutdated else { return state.outdated.insert(store).inserted }
            state.outdated.remove(store)
            return false
        }
        if isNew { maintain(store) }
    }

    private func history(of store: StoreAddress) -> Configuration.History? {
        guard let name = FilePath.Component(bytes: store.name) else { return nil }
        return configuration.value.group(store.group)?.store(named: name)?.history
    }

    /// True once an eighth of the time that changes are kept has passed, and at least a minute.
    private func isPurgeDue(_ store: StoreAddress) -> Bool {
        guard let keep = history(of: store)?.keep else { return false }
        return state.withLock { state in
            guard let last = state.purged[store] else { return true }
            return last.duration(to: .now) > max(.seconds(60), keep / 8)
        }
    }

    private func maintain(_ store: StoreAddress) {
        guard program != nil, let history = history(of: store), let path = path(of: store) else { return }
        var commands = [["history", "enable", "--json"]]
        if let keep = history.keep { commands.append(["history", "purge", "--json", "--older-than=\(keep.seconds)s"]) }
        state.withLock { $0.purged[store] = .now }
        for words in commands {
            let query = Query(arguments: Self.command(words, path: path), id: nil, connection: nil, store: store)
            if let refusal = enqueue(.query(query)) { log.warning("skipping history maintenance: \(refusal.message)") }
        }
    }

    // MARK: The service's thread

    private func loop() {
        while true {
            waitForWork()
            let (task, isStopping) = state.withLock { state -> (Task?, Bool) in
                let task = state.waiting.isEmpty ? nil : state.waiting.removeFirst()
                if case .round(let store)? = task { state.scheduledRounds.remove(store) }
                if case .follow(let store)? = task { state.pages.scheduled.remove(store) }
                return (task, state.isStopping)
            }
            if isStopping { return }
            switch task {
            case .query(let query): answer(query)
            case .round(let store): runRound(store) { [self] in read(store, after: $0) }
            case .follow(let store): followPages(of: store)
            case nil: break
            }
        }
    }

    /// Waits for a task. Meanwhile, stores that couldn't be read are tried again.
    private func waitForWork() {
        while true {
            let busy = rowProblems.stores.filter { rowProblems.isBusy($0) }
            if busy.isEmpty { return work.wait() }
            if work.wait(within: RowProblems.patience) { return }
            for store in busy { schedulePages(of: store) }
        }
    }

    /// Runs a child and returns the lines of its output.
    func messages(_ arguments: [[UInt8]]) throws(SystemError) -> [(type: String, object: JSONObject)] {
        var lines = try lines(arguments)
        var messages: [(type: String, object: JSONObject)] = []
        while let line = try? lines.next() {
            if case .event(let type, let object)? = try? AgentMessage(parsing: line) { messages.append((type, object)) }
        }
        return messages
    }

    private func lines(_ arguments: [[UInt8]]) throws(SystemError) -> LineBuffer {
        guard let program else { return LineBuffer() }
        let output = try ChildProcess.output(program, arguments, deadline: Deadline(after: Self.timeout))
        var lines = LineBuffer(limit: max(output.count + 1, 1))
        lines.append(output)
        return lines
    }

    /// Answers with the lines of a batch, unchanged except for the request's `id`.
    private func answerBatch(_ query: Query) throws(SystemError) {
        var lines = try lines(query.arguments)
        guard query.mayRead() else { return answer(query, .failure(id: query.id, .unknownStore(query.store))) }
        let opening = Array("{".utf8) + (query.id.map { Array("\"id\":\($0.text),".utf8) } ?? [])
        let summary = Array("{\"type\":\"summary\"".utf8)
        var bytes: [UInt8] = []
        while let line = try? lines.next() {
            guard line.starts(with: summary) else {
                bytes += opening + line.dropFirst() + [0x0A]
                continue
            }
            guard case .event(_, let object)? = try? AgentMessage(parsing: line) else { break }
            if let connection = query.connection { publisher.send(connection, lines: bytes) }
            return answer(query, Self.reply(object, id: query.id))
        }
        answer(query, .failure(id: query.id, .noAnswer))
    }

    private func answer(_ query: Query) {
        // The relocation's lease would make the child wait.
        guard states[query.store] != .released else {
            return answer(query, .failure(id: query.id, .relocating))
        }
        if let connection = query.connection, publisher.waitingBytes(of: connection) > Self.maximumUnread {
            return answer(query, .failure(id: query.id, .unreadAnswers))
        }
        if answerFromPages(query) { return }
        do throws(SystemError) {
            guard !query.isBatch else { return try answerBatch(query) }
            var messages: [AgentMessage] = []
            let found = try self.messages(query.arguments)
            guard query.mayRead() else {
                return answer(query, .failure(id: query.id, .unknownStore(query.store)))
            }
            for (type, object) in found {
                var object = object
                if type == "summary" {
                    if let connection = query.connection { publisher.send(connection, messages) }
                    return answer(query, Self.reply(object, id: query.id))
                }
                if let id = query.id { object["id"] = id }
                messages.append(.event(type: type, object))
            }
            answer(query, .failure(id: query.id, .noAnswer))
        } catch {
            answer(query, .failure(id: query.id, WireError(error)))
        }
    }

    func answer(_ query: Query, _ message: AgentMessage) {
        if let connection = query.connection { return publisher.answer(connection, message, wasExpected: true) }
        if case .failure(_, let error) = message { log.warning("history: \(error.message)") }
    }

    private static func reply(_ summary: JSONObject, id: JSONValue?) -> AgentMessage {
        guard let error = summary.object("error") else { return .reply(id: id, summary) }
        return .failure(id: id, WireError(error))
    }
}

extension HistoryOperation {
    fileprivate var isBatch: Bool { if case .changes(_, _, _, _, .values) = self { true } else { false } }
}

extension WireError {
    fileprivate static let noHistoryHere = WireError(
        code: "not_supported", "this agent reads no histories", hint: "groupstore changes STORE needs no agent")
    fileprivate static let tooManyQueries = WireError(
        code: "busy", "too many history queries are waiting", hint: "ask again later")
    fileprivate static let unreadAnswers = WireError(
        code: "busy", "earlier answers have not been read", hint: "read them, then ask again")
    fileprivate static let relocating = WireError(
        code: "relocating", "the store is being relocated", hint: "ask again after relocated or abandoned")
    fileprivate static let noAnswer = WireError(
        code: "timed_out", "the store's history could not be read in time", hint: "ask for fewer changes at once")
}
