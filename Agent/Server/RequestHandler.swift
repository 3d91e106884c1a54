import AgentProtocol
import Glibc
import LinuxSystem
import Logging
import SQLiteFormat
import SystemPackage

/// Turns a client's lines into work for the other parts, and their results into answers. Bytes end here.
package final class RequestHandler {
    private let hub: Publisher
    private let watch: FeedThread
    private let configuration: CurrentConfiguration
    private let scheduler: any RelocationScheduling
    private let presenters: PresenterServer
    private let status: StatusReport
    private let history: HistoryService
    private let version: String
    private let log: Logger
    private let guesses = FailedRequestLimit()
    private let relocations = RequestedRelocations()
    /// Connections that were refused what another configuration may grant.
    private var hopeful: Set<UInt64> = []

    package init(
        hub: Publisher, watch: FeedThread, configuration: CurrentConfiguration, scheduler: any RelocationScheduling,
        presenters: PresenterServer, status: StatusReport, history: HistoryService, version: String, log: Logger
    ) {
        self.history = history
        self.hub = hub
        self.watch = watch
        self.configuration = configuration
        self.scheduler = scheduler
        self.presenters = presenters
        self.status = status
        self.version = version
        self.log = log
    }

    /// A connection's first line.
    var hello: AgentMessage {
        .hello(protocol: WireLine.protocolVersion, agent: version, longestLine: Int64(WireLine.longest))
    }

    /// `passed` takes the next file of which the peer has passed a descriptor.
    func handle(
        _ line: [UInt8], of connection: UInt64, peer: PeerCredentials, passed: () -> PassedFile? = { nil }
    ) {
        do throws(RefusedLine) {
            let request = try AgentRequest(parsing: line)
            let asker = Requester(peer, configuration.value)
            do throws(WireError) {
                try asker.check(request.operation.role)
            } catch {
                throw RefusedLine(id: request.id, error: error)
            }
            try perform(request, connection, asker, passed)
        } catch {
            if AgentConfigured.codes.contains(error.error.code) { hopeful.insert(connection) }
            hub.answer(connection, .failure(id: error.id, error.error))
        }
    }

    /// Whether a descriptor that comes with its requests may mean something.
    func mayPassFiles(_ peer: PeerCredentials) -> Bool {
        let asker = Requester(peer, configuration.value)
        return asker.isTrusted || asker.roles.contains(.relocate)
    }

    /// Tells those who were refused that it is worth while to ask again.
    func configurationChanged() {
        for connection in hopeful { hub.send(connection, [.event(type: AgentConfigured.type, [:])]) }
        hopeful = []
    }

    private func perform(
        _ request: AgentRequest, _ connection: UInt64, _ asker: Requester, _ passed: () -> PassedFile?
    ) throws(RefusedLine) {
        let id = request.id
        switch request.operation {
        case .subscribe(let subscribe):
            guard isServed(subscribe.store, to: asker) else {
                throw RefusedLine(id: id, error: .unknownStore(subscribe.store))
            }
            expect(connection) { $0.subscribe(connection, subscribe, id: id) }
        case .unsubscribe(let store):
            expect(connection) { $0.unsubscribe(connection, from: store, id: id) }
        case .status(let group):
            let report = status.report(to: asker, id: id, group: group)
            hub.send(connection, report.rows)
            hub.answer(connection, .reply(id: id, report.summary))
        case .relocate(let operation):
            do throws(WireError) {
                try relocate(operation, id, connection, asker, passed)
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
            hub.answer(connection, .reply(id: id, [:]))
        case .sync(let store):
            guard isServed(store, to: asker) else { throw RefusedLine(id: id, error: .unknownStore(store)) }
            expect(connection) { $0.sync(connection, store, id: id) }
        case .history(let operation):
            guard let grant = grant(operation.store, to: asker, operation.mode) else {
                throw RefusedLine(id: id, error: .unknownStore(operation.store))
            }
            history.perform(operation, id: id, connection, grant: grant) { [configuration] in
                asker.mayOpen(operation.store, configuration.value, operation.mode)
            }
        case .present, .unpresent, .answer, .claim, .release:
            do throws(WireError) {
                try coordinate(request, connection, asker)
            } catch {
                throw RefusedLine(id: id, error: error)
            }
        }
    }

    /// The watch answers.
    private func expect(_ connection: UInt64, _ work: @escaping FeedThread.Work) {
        hub.expectAnswer(connection)
        hub.beginWork(connection)
        watch.perform { [hub] stores in
            work(stores)
            hub.endWork(connection)
        }
    }

    private func coordinate(
        _ request: AgentRequest, _ connection: UInt64, _ asker: Requester
    ) throws(WireError) {
        let id = request.id
        for (item, use) in request.operation.items where !asker.may(use, item, configuration.value) {
            throw .unknownItem(of: item.group)
        }
        switch request.operation {
        case .present(let operation): try presenters.present(operation, id: id, connection, asker)
        case .unpresent(let presenter): try presenters.unpresent(presenter, id: id, connection)
        case .answer(let operation): try presenters.answer(operation, id: id, connection)
        case .claim(let operation): try presenters.claim(operation, id: id, connection, asker)
        case .release(let operation): try presenters.release(operation, id: id, connection)
        case .subscribe, .unsubscribe, .status, .relocate, .cancel, .history, .sync: break
        }
    }

    /// A peer that says nothing any more can't answer either.
    func silenced(_ connection: UInt64) {
        hopeful.remove(connection)
        presenters.forget(connection)
    }

    /// Until something is to be done although no request comes.
    func timeUntilDeadline() -> Duration? { presenters.timeUntilDeadline() }

    func expire() { presenters.expire() }

    private func isServed(_ store: StoreAddress, to asker: Requester) -> Bool { grant(store, to: asker, R_OK) != nil }

    private func grant(_ store: StoreAddress, to asker: Requester, _ mode: CInt) -> FileGrant? {
        let name = FilePath.Component(bytes: store.name).flatMap(StoreName.init)
        let isServed =
            name != nil && configuration.value.group(store.group) != nil && store.name != Array(".groupstore".utf8)
        // Asked in any case: how long an answer takes tells no more than what it says.
        let item = ItemAddress(group: store.group, path: store.name)
        guard let grant = asker.grant(item, configuration.value, mode), isServed else { return nil }
        return grant
    }

    private func relocate(
        _ operation: RelocateOperation, _ id: JSONValue?, _ connection: UInt64, _ asker: Requester,
        _ passed: () -> PassedFile?
    ) throws(WireError) {
        let file = passed()
        log.info("relocation asked for", metadata: ["pid": "\(asker.peer.pid)", "uid": "\(asker.peer.uid)"])
        try asker.checkRelocation(operation, configuration.value, source: file)
        let guess = try guesses.begin()
        hub.expectAnswer(connection)
        let isOthers = !asker.isTrusted
        let stop = relocations.begin(id, of: connection)
        scheduler.relocate(operation, isAbandoned: { [hub] in stop.isSet || !hub.isConnected(connection) }) {
            [hub, log, relocations] answer in
            switch isOthers ? answer.withoutPlaces : answer {
            case .recognized: guess.wasRight()
            case .progress(let type, var object):
                if let id { object["id"] = id }
                hub.send(connection, [.event(type: type, object)], optional: true)
            case .summary(var object):
                relocations.end(stop)
                guess.wasRight()
                if isOthers { log.notice("relocation for another user: \(Self.text(answer))") }
                object["type"] = "summary"
                hub.answer(connection, .reply(id: id, object), wasExpected: true)
            case .refused(let error):
                relocations.end(stop)
                if error.code != "not_visible" { guess.wasRight() }
                hub.answer(connection, .failure(id: id, error), wasExpected: true)
            }
        }
    }

    /// What the log says of an answer.
    private static func text(_ answer: RelocateAnswer) -> String {
        if case .summary(let object) = answer { object.text } else { "" }
    }

    /// The last subscriber of these stores has gone.
    func abandon(_ stores: [StoreAddress]) {
        guard !stores.isEmpty else { return }
        watch.perform { followed in
            for store in stores { followed.forgetIfUnused(store) }
        }
    }
}

extension AgentRequest.Operation {
    /// What a user must be allowed to ask it; nil: nothing.
    fileprivate var role: Role? {
        switch self {
        case .subscribe, .unsubscribe, .sync, .history: .subscribe
        case .present, .unpresent, .answer, .claim, .release: .present
        case .relocate, .cancel: .relocate
        case .status: nil
        }
    }

    /// What it presents or claims.
    fileprivate var items: [(ItemAddress, Requester.ItemUse)] {
        switch self {
        case .present(let operation): [(operation.item, .read)]
        case .claim(let operation): operation.intents.map { ($0.item, $0.writes ? .write : .read) }
        // Presenters of both are told.
        case .release(let operation): operation.moves.flatMap { [($0.from, .move), ($0.to, .move)] }
        default: []
        }
    }
}

extension HistoryOperation {
    /// Who acknowledges writes into the store.
    fileprivate var mode: CInt { if case .acknowledge = self { R_OK | W_OK } else { R_OK } }
}
