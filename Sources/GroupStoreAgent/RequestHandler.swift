import AgentProtocol
import LinuxSystem
import Logging
import PersistentStore
import SystemPackage

/// Turns a client's lines into work for the other parts, and their results into answers. Bytes end here.
package final class RequestHandler {
    private let hub: Hub
    private let watch: Watch
    private let configuration: CurrentConfiguration
    private let scheduler: any RelocationScheduling
    private let presenters: PresenterDesk
    private let status: StatusReport
    private let history: HistoryDesk
    private let version: String
    private let log: Logger

    package init(
        hub: Hub, watch: Watch, configuration: CurrentConfiguration, scheduler: any RelocationScheduling,
        presenters: PresenterDesk, status: StatusReport, history: HistoryDesk, version: String, log: Logger
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

    func handle(_ line: [UInt8], of connection: UInt64, peer: PeerCredentials) {
        do throws(RefusedLine) {
            try perform(AgentRequest(parsing: line), connection, peer)
        } catch {
            hub.answer(connection, .failure(id: error.id, error.error))
        }
    }

    private func perform(
        _ request: AgentRequest, _ connection: UInt64, _ peer: PeerCredentials
    ) throws(RefusedLine) {
        let id = request.id
        switch request.operation {
        case .subscribe(let subscribe):
            guard isServed(subscribe.store) else {
                throw RefusedLine(id: id, error: .unknownStore(subscribe.store))
            }
            hub.expectAnswer(connection)
            watch.perform { $0.subscribe(connection, subscribe, id: id) }
        case .unsubscribe(let store):
            hub.expectAnswer(connection)
            watch.perform { $0.unsubscribe(connection, from: store, id: id) }
        case .status(let group):
            hub.send(connection, status.rows(id: id, group: group))
            hub.answer(connection, .reply(id: id, status.summary()))
        case .relocate(let operation): relocate(operation, id, connection, peer)
        case .sync(let store):
            guard isServed(store) else { throw RefusedLine(id: id, error: .unknownStore(store)) }
            hub.expectAnswer(connection)
            watch.perform { $0.sync(connection, store, id: id) }
        case .history(let operation):
            guard isServed(operation.store) else { throw RefusedLine(id: id, error: .unknownStore(operation.store)) }
            history.perform(operation, id: id, connection)
        case .present, .unpresent, .answer, .claim, .release:
            do throws(WireError) {
                try coordinate(request, connection, peer)
            } catch {
                throw RefusedLine(id: id, error: error)
            }
        }
    }

    private func coordinate(
        _ request: AgentRequest, _ connection: UInt64, _ peer: PeerCredentials
    ) throws(WireError) {
        let id = request.id
        switch request.operation {
        case .present(let operation): try presenters.present(operation, id: id, connection, peer)
        case .unpresent(let presenter): try presenters.unpresent(presenter, id: id, connection)
        case .answer(let operation): try presenters.answer(operation, id: id, connection)
        case .claim(let operation): try presenters.claim(operation, id: id, connection)
        case .release(let operation): try presenters.release(operation, id: id, connection)
        case .subscribe, .unsubscribe, .status, .relocate, .history, .sync: break
        }
    }

    /// A peer that says nothing any more can't answer either.
    func silenced(_ connection: UInt64) { presenters.forget(connection) }

    /// Until something is to be done although no request comes.
    func timeUntilDeadline() -> Duration? { presenters.timeUntilDeadline() }

    func expire() { presenters.expire() }

    private func isServed(_ store: StoreAddress) -> Bool {
        let name = FilePath.Component(bytes: store.name).flatMap(StoreName.init)
        return name != nil && configuration.value.group(store.group) != nil
            && store.name != Array(".groupstore".utf8)
    }

    private func relocate(
        _ operation: RelocateOperation, _ id: JSONValue?, _ connection: UInt64, _ peer: PeerCredentials
    ) {
        log.info("relocation asked for", metadata: ["pid": "\(peer.pid)", "uid": "\(peer.uid)"])
        hub.expectAnswer(connection)
        scheduler.relocate(operation, isAbandoned: { [hub] in !hub.isConnected(connection) }) { [hub] answer in
            switch answer {
            case .progress(let type, var object):
                if let id { object["id"] = id }
                hub.send(connection, [.event(type: type, object)], optional: true)
            case .summary(var object):
                object["type"] = "summary"
                hub.answer(connection, .reply(id: id, object), wasExpected: true)
            case .refused(let error):
                hub.answer(connection, .failure(id: id, error), wasExpected: true)
            }
        }
    }

    /// The last subscriber of these stores has gone.
    func abandon(_ stores: [StoreAddress]) {
        guard !stores.isEmpty else { return }
        watch.perform { followed in
            for store in stores { followed.forgetIfUnused(store) }
        }
    }
}
