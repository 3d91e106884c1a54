import AgentProtocol
import Glibc
import LinuxSystem
import Logging
import SQLiteFormat
import StoreWatching
import SystemPackage

/// Parses a client's lines, has the other parts of the agent do the work, and answers.
package final class RequestHandler {
    private let publisher: Publisher
    private let feedThread: FeedThread
    private let configuration: CurrentConfiguration
    private let scheduler: any RelocationScheduling
    private let presenters: PresenterServer
    private let status: StatusReport
    private let history: HistoryService
    private let version: String
    private let log: Logger
    private let failedRequests = FailedRequestLimit()
    private let relocations = RequestedRelocations()
    /// Connections that were refused something that another configuration may grant.
    private var refusedConnections: Set<UInt64> = []
    private var serveNewContainers: () -> Void = {}

    package init(
        publisher: Publisher, feedThread: FeedThread, configuration: CurrentConfiguration,
        scheduler: any RelocationScheduling,
        presenters: PresenterServer, status: StatusReport, history: HistoryService, version: String, log: Logger
    ) {
        self.history = history
        self.publisher = publisher
        self.feedThread = feedThread
        self.configuration = configuration
        self.scheduler = scheduler
        self.presenters = presenters
        self.status = status
        self.version = version
        self.log = log
    }

    /// Sets what serves the group containers that were made since the configuration was loaded. A client that has just
    /// made one may ask for it before the agent has noticed.
    func onUnservedContainer(_ serve: @escaping () -> Void) { serveNewContainers = serve }

    /// The first line of every connection.
    var hello: AgentMessage {
        .hello(protocol: WireLine.protocolVersion, agent: version, maxLineLength: Int64(WireLine.maxLength))
    }

    /// Handles one line. `passed` returns the next file whose descriptor the peer has passed.
    func handle(
        _ line: [UInt8], of connection: UInt64, peer: PeerCredentials, passed: () -> PassedFile? = { nil }
    ) {
        do throws(RefusedLine) {
            let request = try AgentRequest(parsing: line)
            if mayNameNewContainer(request.operation) { serveNewContainers() }
            let requester = Requester(peer, configuration.value)
            do throws(WireError) {
                try requester.check(request.operation.role)
                try checkDirectory(request, requester)
            } catch {
                throw RefusedLine(id: request.id, error: error)
            }
            try perform(request, connection: connection, requester: requester, passed: passed)
        } catch {
            if AgentConfigured.codes.contains(error.error.code) { refusedConnections.insert(connection) }
            publisher.answer(connection, .failure(id: error.id, error.error))
        }
    }

    /// Throws if the client means another directory than the one that is served under the group's identifier: its
    /// stores and presenters are others, though their names are the same.
    private func checkDirectory(_ request: AgentRequest, _ requester: Requester) throws(WireError) {
        guard let wanted = request.groupIdentity, let name = request.operation.groups?.first,
            let group = configuration.value.group(name), let served = FileStatus(following: group.directory)?.identity,
            (wanted.device, wanted.inode) != (served.device, served.inode)
        else { return }
        throw .otherDirectory(of: name, requester.isTrusted ? group.directory : nil)
    }

    /// True if the operation is about a container that isn't served yet, or about all of them.
    private func mayNameNewContainer(_ operation: AgentRequest.Operation) -> Bool {
        let configuration = configuration.value
        guard configuration.containers != nil else { return false }
        return operation.groups?.contains(where: configuration.hasUnservedContainer) ?? true
    }

    /// True if descriptors passed with the peer's requests may be of use.
    func mayPassFiles(_ peer: PeerCredentials) -> Bool {
        let requester = Requester(peer, configuration.value)
        return requester.isTrusted || requester.roles.contains(.relocate)
    }

    /// Notifies the refused clients that it is worthwhile to ask again.
    func configurationChanged() {
        for connection in refusedConnections { publisher.send(connection, [.event(type: AgentConfigured.type, [:])]) }
        refusedConnections = []
    }

    private func perform(
        _ request: AgentRequest, connection: UInt64, requester: Requester, passed: () -> PassedFile?
    ) throws(RefusedLine) {
        let id = request.id
        switch request.operation {
        case .subscribe(let subscribe):
            guard isServed(subscribe.store, to: requester) else {
                throw RefusedLine(id: id, error: .unknownStore(subscribe.store))
            }
            performOnFeedThread(connection) { $0.subscribe(connection, subscribe, id: id) }
        case .unsubscribe(let store):
            performOnFeedThread(connection) { $0.unsubscribe(connection, from: store, id: id) }
        case .status(let operation):
            let report = status.report(operation, to: requester, id: id)
            publisher.send(connection, report.rows)
            publisher.answer(connection, .reply(id: id, report.summary))
        case .relocate(let operation):
            do throws(WireError) {
                try relocate(operation, id: id, connection: connection, requester: requester, passed: passed)
            } catch {
                throw RefusedLine(id: id, error: error)
            }
        case .cancel(let request):
            guard relocations.cancel(request, of: connection) else {
                let error = WireError(
                    code: "no_such_request", "no relocation of this connection with that id is under way",
                    hint: "it is over, or not begun")
                throw RefusedLine(id: id, error: error)
            }
            publisher.answer(connection, .reply(id: id, [:]))
        case .sync(let store):
            guard isServed(store, to: requester) else { throw RefusedLine(id: id, error: .unknownStore(store)) }
            performOnFeedThread(connection) { $0.sync(connection, store, id: id) }
        case .history(let operation):
            guard let grant = grant(operation.store, to: requester, operation.mode) else {
                throw RefusedLine(id: id, error: .unknownStore(operation.store))
            }
            history.perform(operation, id: id, connection, grant: grant) { [configuration] in
                requester.mayOpen(operation.store, in: configuration.value, mode: operation.mode)
            }
        case .present, .unpresent, .answer, .claim, .release:
            do throws(WireError) {
                try coordinate(request, connection: connection, requester: requester)
            } catch {
                throw RefusedLine(id: id, error: error)
            }
        }
    }

    /// Has the feed thread do the work and answer.
    private func performOnFeedThread(
        _ connection: UInt64, _ work: @escaping @Sendable (SubscriptionRequests) -> Void
    ) {
        publisher.expectAnswer(connection)
        publisher.beginWork(connection)
        feedThread.perform { [publisher] stores in
            work(SubscriptionRequests(stores: stores, publisher: publisher))
            publisher.endWork(connection)
        }
    }

    private func coordinate(
        _ request: AgentRequest, connection: UInt64, requester: Requester
    ) throws(WireError) {
        let id = request.id
        for (item, use) in request.operation.items where !requester.may(use, item, in: configuration.value) {
            throw .unknownItem(of: item.group)
        }
        switch request.operation {
        case .present(let operation):
            try presenters.present(operation, id: id, connection: connection, requester: requester)
        case .unpresent(let presenter): try presenters.unpresent(presenter, id: id, connection: connection)
        case .answer(let operation): try presenters.answer(operation, id: id, connection: connection)
        case .claim(let operation):
            try presenters.claim(operation, id: id, connection: connection, requester: requester)
        case .release(let operation): try presenters.release(operation, id: id, connection: connection)
        case .subscribe, .unsubscribe, .status, .relocate, .cancel, .history, .sync: break
        }
    }

    /// Forgets a peer that has shut down its side: it can't answer any more either.
    func peerStoppedSending(_ connection: UInt64) {
        refusedConnections.remove(connection)
        presenters.forget(connection)
    }

    /// The time until the next deadline; nil if there is none.
    func timeUntilDeadline() -> Duration? { presenters.timeUntilDeadline() }

    func expire() { presenters.expire() }

    private func isServed(_ store: StoreAddress, to requester: Requester) -> Bool {
        grant(store, to: requester, R_OK) != nil
    }

    private func grant(_ store: StoreAddress, to requester: Requester, _ mode: CInt) -> FileGrant? {
        let name = FilePath.Component(bytes: store.name).flatMap(StoreName.init)
        let isServed =
            name != nil && configuration.value.group(store.group) != nil && store.name != Array(".groupstore".utf8)
        // Checked in any case, so that the time an answer takes reveals no more than the answer.
        let item = ItemAddress(group: store.group, path: store.name)
        guard let grant = requester.grant(item, in: configuration.value, mode: mode), isServed else { return nil }
        return grant
    }

    private func relocate(
        _ operation: RelocateOperation, id: JSONValue?, connection: UInt64, requester: Requester,
        passed: () -> PassedFile?
    ) throws(WireError) {
        let file = passed()
        log.info("relocation requested", metadata: ["pid": "\(requester.peer.pid)", "uid": "\(requester.peer.uid)"])
        try requester.checkRelocation(operation, configuration.value, source: file)
        let attempt = try failedRequests.beginAttempt()
        publisher.expectAnswer(connection)
        let isUntrusted = !requester.isTrusted
        let stop = relocations.begin(id, of: connection)
        scheduler.relocate(
            operation, isAbandoned: { [publisher] in stop.isSet || !publisher.isConnected(connection) }
        ) { [publisher, log, relocations] answer in
            switch isUntrusted ? answer.redacted : answer {
            case .recognized: attempt.succeeded()
            case .progress(let type, var object):
                if let id { object["id"] = id }
                publisher.send(connection, [.event(type: type, object)], optional: true)
            case .summary(var object):
                relocations.end(stop)
                attempt.succeeded()
                if isUntrusted { log.notice("relocation for another user: \(Self.text(answer))") }
                object["type"] = "summary"
                publisher.answer(connection, .reply(id: id, object), wasExpected: true)
            case .refused(let error):
                relocations.end(stop)
                if error.code != "not_visible" { attempt.succeeded() }
                publisher.answer(connection, .failure(id: id, error), wasExpected: true)
            }
        }
    }

    /// Returns the answer as the log shows it.
    private static func text(_ answer: RelocateAnswer) -> String {
        if case .summary(let object) = answer { object.text } else { "" }
    }

    /// Stops following stores that have lost their last subscriber, unless they are configured.
    func abandon(_ addresses: [StoreAddress]) {
        guard !addresses.isEmpty else { return }
        feedThread.perform { stores in
            for address in addresses { stores.forgetIfUnused(address) }
        }
    }
}

extension WireError {
    /// - Parameter directory: The directory that is served; nil if the client may not know it.
    fileprivate static func otherDirectory(of group: String, _ directory: FilePath?) -> WireError {
        guard let directory else { return .unknownItem(of: group) }
        return WireError(
            code: "unknown_store",
            "the agent serves group \(group) in \(PrintablePath(directory)), and this program another one",
            hint: "start both with the same HOME, XDG_DATA_HOME and GROUPSTORE_CONTAINERS, or name this program's "
                + "directory to the agent: --group \(group)=DIR")
    }
}

extension AgentRequest.Operation {
    /// The role that the operation requires; nil for none.
    fileprivate var role: Role? {
        switch self {
        case .subscribe, .unsubscribe, .sync, .history: .subscribe
        case .present, .unpresent, .answer, .claim, .release: .present
        case .relocate, .cancel: .relocate
        case .status: nil
        }
    }

    /// The groups that it names; nil if it may be about any.
    fileprivate var groups: [String]? {
        switch self {
        case .subscribe(let operation): [operation.store.group]
        case .sync(let store), .unsubscribe(let store): [store.group]
        case .history(let operation): [operation.store.group]
        case .status(let operation): operation.onlyGroup.map { [$0] }
        case .relocate: nil
        case .present, .claim, .release: items.map(\.0.group)
        case .unpresent, .answer, .cancel: []
        }
    }

    /// The items that it presents or claims.
    fileprivate var items: [(ItemAddress, Requester.ItemUse)] {
        switch self {
        case .present(let operation): [(operation.item, .read)]
        case .claim(let operation): operation.intents.map { ($0.item, $0.writes ? .write : .read) }
        // Presenters of both are notified.
        case .release(let operation): operation.moves.flatMap { [($0.from, .move), ($0.to, .move)] }
        default: []
        }
    }
}

extension HistoryOperation {
    /// The access that it needs. An acknowledgement writes into the store.
    fileprivate var mode: CInt { if case .acknowledge = self { R_OK | W_OK } else { R_OK } }
}
