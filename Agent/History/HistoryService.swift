import AgentProtocol
import Dispatch
import LinuxSystem
import Logging
import PersistentHistory
import Synchronization
import SystemPackage

/// Answers what clients ask about changed rows. A store's history is read through SQLite, which the process that feeds
/// must not open a watched store with: a child process of the same program opens it, reads, and ends. It never holds a
/// store that a relocation wants for longer than that.
///
/// So it is for the subscriptions that a store's history is read for.
///
/// One thread, made with the first question, and one child at a time.
package final class HistoryService: Sendable {
    struct Question: Sendable {
        let arguments: [[UInt8]]
        let id: JSONValue?
        /// Nil: the agent's own wish.
        let connection: UInt64?
        let store: StoreAddress
        /// Asked before the answer is sent: another file may have come to the store's name since.
        var mayRead: @Sendable () -> Bool = { true }
    }

    enum Task: Sendable {
        case question(Question)
        /// Somebody who is subscribed wants to know which rows changed.
        case round(StoreAddress)
    }

    struct State {
        var waiting: [Task] = []
        /// The stores whose round waits.
        var due: Set<StoreAddress> = []
        var isStopping = false
        var purged: [StoreAddress: ContinuousClock.Instant] = [:]
        var thread: SystemThread?
    }

    let hub: Publisher
    private let configuration: CurrentConfiguration
    let states: FollowingStates
    let feed: FeedControl?
    let program: FilePath?
    let log: Logger
    let state = Mutex(State())
    private let work = DispatchSemaphore(value: 0)

    /// More than this don't wait; the client asks again.
    private static let mostWaiting = 256
    /// How long one child may take.
    private static let patience = Duration.seconds(30)
    /// Bytes of answers that a client hasn't taken.
    private static let mostUnread = 8 << 20
    /// Rows in an answer that doesn't say how many.
    private static let pageLength: Int64 = 256

    package init(
        hub: Publisher, configuration: CurrentConfiguration, states: FollowingStates, feed: FeedControl?,
        program: FilePath?, log: Logger
    ) {
        self.feed = feed
        self.log = log
        self.hub = hub
        self.configuration = configuration
        self.states = states
        self.program = program
    }

    /// The answer comes later, from the desk's thread. The store's group is served.
    func perform(
        _ operation: HistoryOperation, id: JSONValue?, _ connection: UInt64, grant: FileGrant = .anything,
        mayRead: @escaping @Sendable () -> Bool = { true }
    ) {
        guard program != nil, let path = path(of: operation.store) else {
            return hub.answer(connection, .failure(id: id, .noHistoryHere))
        }
        let question = Question(
            arguments: Self.command(Self.words(operation), path, grant), id: id, connection: connection,
            store: operation.store, mayRead: mayRead)
        hub.expectAnswer(connection)
        if let refusal = enqueue(.question(question)) { answer(question, .failure(id: id, refusal)) }
    }

    /// Why it isn't done; nil when it will be.
    func enqueue(_ task: Task) -> WireError? {
        let refusal = state.withLock { state -> WireError? in
            if case .question = task, state.waiting.count >= Self.mostWaiting { return .tooManyQuestions }
            do throws(SystemError) {
                if state.thread == nil { state.thread = try SystemThread(name: "gs-history") { [self] in loop() } }
            } catch {
                return WireError(code: "system", "\(error)", hint: "too many threads?")
            }
            state.waiting.append(task)
            return nil
        }
        if refusal == nil { work.signal() }
        return refusal
    }

    /// What still waits is not answered.
    package func stop() {
        let thread = state.withLock { state in
            state.isStopping = true
            state.waiting = []
            return state.thread.take()
        }
        work.signal()
        _ = thread?.join(within: .seconds(1))
    }

    func path(of store: StoreAddress) -> FilePath? {
        guard let name = FilePath.Component(bytes: store.name) else { return nil }
        return configuration.value.group(store.group)?.directory.appending(name)
    }

    /// A child's arguments. Who may write to the group's directory must not lead it, with a link, to what this process
    /// alone may write: it takes nothing but a regular file, and of whoever is granted one file, nothing but that.
    static func command(_ words: [String], _ path: FilePath, _ grant: FileGrant = .anything) -> [[UInt8]] {
        let held =
            switch grant {
            case .anything: "--no-links"
            case .only(let file): "--only-file=\(file.device):\(file.inode)"
            // No file has that number.
            case .nothing: "--only-file=0:0"
            }
        return (["groupstore"] + words + [held, "--"]).map { Array($0.utf8) } + [path.bytes]
    }

    private static func words(_ operation: HistoryOperation) -> [String] {
        switch operation {
        case .changes(_, let since, let limit, let filter):
            var words = ["changes", "--json", "--wire-lines", "--limit=\(limit ?? pageLength)"]
            if let since { words.append("--since=\(since)") }
            let lists = [
                ("tables", filter.tables), ("entities", filter.entities), ("operations", filter.operations),
                ("authors", filter.authors), ("except-authors", filter.exceptAuthors),
            ]
            for (name, values) in lists {
                if let values { words.append("--\(name)=\(EscapedNames.text(values))") }
            }
            return words
        case .acknowledge(_, let subscriber, let token):
            return ["history", "acknowledge", "--json", "--subscriber=\(subscriber)", "--token=\(token)"]
        }
    }

    // MARK: What the configuration asks for

    /// Enables history where the configuration says so and a store is there.
    package func maintainAll() {
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

    /// A store that came, or whose schema was changed, is seen to; old changes are purged now and then.
    func noticed(_ event: StoreEvent, of store: StoreAddress) {
        switch event {
        case .relocated, .migrated, .reset(.appeared), .reset(.replaced): maintain(store)
        case .change(let tables):
            if tables.names?.contains("sqlite_schema") == true || isPurgeDue(store) { maintain(store) }
        case .relocating, .abandoned, .reset: break
        }
    }

    private func history(of store: StoreAddress) -> Configuration.History? {
        guard let name = FilePath.Component(bytes: store.name) else { return nil }
        return configuration.value.group(store.group)?.store(named: name)?.history
    }

    /// An eighth of the time that changes are kept, and a minute at least.
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
            let wish = Question(arguments: Self.command(words, path), id: nil, connection: nil, store: store)
            if let refusal = enqueue(.question(wish)) { log.warning("history is not seen to: \(refusal.message)") }
        }
    }

    // MARK: The desk's thread

    private func loop() {
        while true {
            work.wait()
            let (task, isStopping) = state.withLock { state -> (Task?, Bool) in
                let task = state.waiting.isEmpty ? nil : state.waiting.removeFirst()
                if case .round(let store)? = task { state.due.remove(store) }
                return (task, state.isStopping)
            }
            if isStopping { return }
            switch task {
            case .question(let question): answer(question)
            case .round(let store): settle(store) { [self] in read(store, after: $0) }
            case nil: break
            }
        }
    }

    /// The lines of a child that ended.
    func messages(_ arguments: [[UInt8]]) throws(SystemError) -> [(type: String, object: JSONObject)] {
        guard let program else { return [] }
        let output = try ChildProcess.output(program, arguments, deadline: Deadline(after: Self.patience))
        var lines = LineBuffer(limit: max(output.count + 1, 1))
        lines.append(output)
        var messages: [(type: String, object: JSONObject)] = []
        while let line = try? lines.next() {
            if case .event(let type, let object)? = try? AgentMessage(parsing: line) { messages.append((type, object)) }
        }
        return messages
    }

    private func answer(_ question: Question) {
        // Its lease would make the child wait.
        guard states[question.store] != .released else {
            return answer(question, .failure(id: question.id, .relocating))
        }
        if let connection = question.connection, hub.waitingBytes(of: connection) > Self.mostUnread {
            return answer(question, .failure(id: question.id, .unreadAnswers))
        }
        do throws(SystemError) {
            var messages: [AgentMessage] = []
            let found = try self.messages(question.arguments)
            guard question.mayRead() else {
                return answer(question, .failure(id: question.id, .unknownStore(question.store)))
            }
            for (type, object) in found {
                var object = object
                if type == "summary" {
                    if let connection = question.connection { hub.send(connection, messages) }
                    return answer(question, Self.reply(object, id: question.id))
                }
                if let id = question.id { object["id"] = id }
                messages.append(.event(type: type, object))
            }
            answer(question, .failure(id: question.id, .noAnswer))
        } catch {
            answer(question, .failure(id: question.id, WireError(code: "system", "\(error)", hint: nil)))
        }
    }

    private func answer(_ question: Question, _ message: AgentMessage) {
        if let connection = question.connection { return hub.answer(connection, message, wasExpected: true) }
        if case .failure(_, let error) = message { log.warning("history: \(error.message)") }
    }

    private static func reply(_ summary: JSONObject, id: JSONValue?) -> AgentMessage {
        guard let error = summary.object("error") else { return .reply(id: id, summary) }
        return .failure(id: id, WireError(error))
    }
}

extension WireError {
    fileprivate static let noHistoryHere = WireError(
        code: "not_supported", "this agent reads no histories", hint: "groupstore changes STORE needs no agent")
    fileprivate static let tooManyQuestions = WireError(
        code: "busy", "too many questions about histories wait already", hint: "ask again when they are answered")
    fileprivate static let unreadAnswers = WireError(
        code: "busy", "earlier answers wait to be read", hint: "read them, then ask again")
    fileprivate static let relocating = WireError(
        code: "relocating", "the store is being relocated", hint: "ask again after relocated or abandoned")
    fileprivate static let noAnswer = WireError(
        code: "timed_out", "the store's history could not be read in time", hint: "ask for fewer changes at once")
}
