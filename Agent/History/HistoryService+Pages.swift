import AgentProtocol
import Glibc
import GroupContainers
import LinuxSystem
import PersistentHistory
import RowShadow
import SQLiteStore
import StoreWatching
import SystemPackage

/// The stores whose rows are told from their pages.
struct PageRowsState {
    var sources: [StoreAddress: PageRows] = [:]
    /// The stores whose pages are to be read.
    var scheduled: Set<StoreAddress> = []
    /// The stores that something other than transactions in the log may have written.
    var unproven: Set<StoreAddress> = []
    /// The stores that keep a history of their own, which goes first.
    var withHistory: Set<StoreAddress> = []
}

// The other source of rows. A store's own history goes first. Only the service's thread reads pages.
extension HistoryService {
    /// Records what an event says of the store's pages. Call it before subscribers are sent the event.
    package func prepare(for event: StoreEvent, of store: StoreAddress) {
        guard wantsPages(of: store) else { return }
        if case .change(let tables) = event, tables.isComplete, tables.names?.contains("sqlite_schema") != true {
            return
        }
        state.withLock { state in
            state.pages.unproven.insert(store)
            state.pages.withHistory.remove(store)
        }
    }

    /// Call it with each file event of a store, before the store is read.
    package func recordFileEvent(of store: StoreAddress) {
        guard states[store] != .released else { return }
        state.withLock { $0.pages.sources[store] }?.readJournalEvents()
    }

    /// Queues a read of the store's pages, if its rows are told from them.
    func schedulePages(of store: StoreAddress) {
        guard wantsPages(of: store), state.withLock({ $0.pages.scheduled.insert(store).inserted }) else { return }
        if enqueue(.follow(store)) != nil { state.withLock { _ = $0.pages.scheduled.remove(store) } }
    }

    /// Queues a read of the pages of each store whose rows are told from them, and forgets the others.
    func followAllPages() {
        let left = state.withLock { state in
            let left = state.pages.sources.keys.filter { !wantsPages(of: $0) }
            return left.compactMap { state.pages.sources.removeValue(forKey: $0) }
        }
        for source in left { source.close() }
        for store in rowProblems.stores where !wantsPages(of: store) { rowsAreRead(store) }
        for group in configuration.value.groups {
            for store in group.stores where store.rows {
                let address = StoreAddress(group: group.identifier.rawValue, name: store.name.database.bytes)
                if let address { schedulePages(of: address) }
            }
        }
    }

    /// Closes the copies. Call it when the thread has ended.
    func closePageRows() {
        let sources = state.withLock { state in
            defer { state.pages.sources = [:] }
            return state.pages.sources.values
        }
        for source in sources { source.close() }
    }

    private func wantsPages(of store: StoreAddress) -> Bool {
        guard let name = FilePath.Component(bytes: store.name) else { return false }
        return configuration.value.group(store.group)?.store(named: name)?.rows ?? false
    }

    /// True if the rows of the store are told from its pages, as far as is known.
    func hasPageRows(_ store: StoreAddress) -> Bool {
        wantsPages(of: store) && !state.withLock { $0.pages.withHistory.contains(store) }
    }

    /// Reads the store's pages now.
    func followPages(of store: StoreAddress) {
        guard states[store] != .released else { return }
        do {
            _ = try pageRows(of: store)
            rowsAreRead(store)
        } catch { pageRowsFailed(store, error) }
    }

    /// Returns the rows of a store from its pages, as of now; nil if its own history tells them, or nothing.
    ///
    /// Throws `RowShadowError`, `SystemError`, and `StoreError` if there is no store: it may come back.
    func pageRows(of store: StoreAddress) throws -> PageRows? {
        guard hasPageRows(store), let path = path(of: store), let name = path.lastComponent else { return nil }
        let isUnproven = state.withLock { $0.pages.unproven.remove(store) != nil }
        let known = knownRows(of: store)
        do {
            if known == nil || isUnproven {
                guard let tables = try StoreTables.statements(ofStoreAt: path) else {
                    throw FileStatus(following: path) == nil ? StoreError.missing(path) : RowShadowError.busy(path)
                }
                if HistorySchema.isKept(by: tables) {
                    let ended = state.withLock { state in
                        state.pages.withHistory.insert(store)
                        return state.pages.sources.removeValue(forKey: store)
                    }
                    ended?.close()
                    return nil
                }
            }
            let place = try Self.place(of: name, in: path.removingLastComponent())
            let isNew = known == nil
            let source = try known ?? PageRows(path, place) { [log] in log.warning("making the copy anew: \($0)") }
            guard try source.follow(comparesAll: isNew || isUnproven) else { throw RowShadowError.busy(path) }
            state.withLock { $0.pages.sources[store] = source }
            return source
        } catch {
            state.withLock { _ = $0.pages.unproven.insert(store) }
            throw error
        }
    }

    /// Returns the rows that are known of a store. Drops those whose copy was moved away with the group's directory:
    /// what has its path now may be another one, or the same that has come back, and then the copy can be opened again.
    private func knownRows(of store: StoreAddress) -> PageRows? {
        guard let known = state.withLock({ $0.pages.sources[store] }) else { return nil }
        if known.isInPlace { return known }
        state.withLock { _ = $0.pages.sources.removeValue(forKey: store) }
        return nil
    }

    /// Returns the place of a store's copies, which nobody but this user may enter.
    private static func place(of name: FilePath.Component, in group: FilePath) throws -> ShadowPlace {
        let place = ShadowPlace(of: name, inGroup: group)
        let bookkeeping = try GroupContainer(group).bookkeeping()
        if try bookkeeping.status(ShadowPlace.groupName) == nil {
            try bookkeeping.makeDirectory(ShadowPlace.groupName, mode: 0o700)
        }
        let status = try bookkeeping.directory(ShadowPlace.groupName).status()
        guard status.owner == geteuid(), status.permissions & 0o077 == 0 else {
            throw PageRowsError.notPrivate(place.path.removingLastComponent())
        }
        return place
    }

    /// Records why rows can't be told from pages now, and logs it once. A copy that failed is opened anew. Returns the
    /// answer for a client.
    @discardableResult
    func pageRowsFailed(_ store: StoreAddress, _ found: any Error) -> WireError {
        if !Self.isBusy(found) { state.withLock { _ = $0.pages.sources.removeValue(forKey: store) } }
        let name = PrintablePath(bytes: store.bytes)
        guard let error = path(of: store).map({ Self.failure(found, of: $0) }) as? any ActionableError else {
            log.warning("rows of \(name): \(found)")
            return WireError(code: "busy", "the rows can't be read now")
        }
        if case StoreError.missing? = error as? StoreError {
            // Its events say so.
            _ = rowProblems.end(store)
        } else if case .began(let reason) = rowProblems.record(error, of: store) {
            log.warning("can't record or tell rows of \(name): \(reason)")
        }
        // A failed system call isn't a limit here: its code says what is to be done.
        return WireError(code: error.errorCode, error.fullMessage, hint: error.remedy)
    }

    /// Returns what a failure to read a store's rows means. A name that is missing isn't a disk's fault: the group's
    /// directory is moved away, or was for a moment.
    private static func failure(_ error: any Error, of store: FilePath) -> any Error {
        guard let system = error as? SystemError, [.noSuchFileOrDirectory, .notDirectory].contains(system.errno) else {
            return error
        }
        return FileStatus(following: store) == nil ? StoreError.missing(store) : RowShadowError.busy(store)
    }

    /// Records that rows were recorded and told, or needn't be, and logs it if there was a problem.
    func rowsAreRead(_ store: StoreAddress) {
        guard rowProblems.end(store) == .over else { return }
        log.notice("recording rows of \(PrintablePath(bytes: store.bytes)) again")
    }

    private static func isBusy(_ error: any Error) -> Bool {
        if case RowShadowError.busy? = error as? RowShadowError { true } else { false }
    }

    /// Answers a query from the store's pages. Returns false if its own history has the answer.
    func answerFromPages(_ query: Query) -> Bool {
        guard let operation = query.operation else { return false }
        if case .changes(_, _, _, let filter, _) = operation, filter.needsHistory { return false }
        do {
            guard let rows = try pageRows(of: query.store) else { return false }
            guard case .changes(_, let since, let limit, let filter, let content) = operation else {
                throw PageRowsError.unacknowledged(query.store)
            }
            let page = try rows.page(since: since, limit: Int(limit ?? 256), filter, content)
            rowsAreRead(query.store)
            guard query.mayRead() else {
                answer(query, .failure(id: query.id, .unknownStore(query.store)))
                return true
            }
            var bytes: [UInt8] = []
            for line in page.lines {
                var object: JSONObject = ["type": line["type"] ?? "row"]
                for member in line.members { object[member.key] = member.value }
                let opening = Array("{".utf8) + (query.id.map { Array("\"id\":\($0.text),".utf8) } ?? [])
                for whole in WireLine.wholeLines(object) { bytes += opening + whole.dropFirst() }
            }
            if let connection = query.connection, !bytes.isEmpty { publisher.send(connection, lines: bytes) }
            answer(query, .reply(id: query.id, page.reply))
        } catch let error as PageRowsError where error.isOfRequest {
            answer(query, .failure(id: query.id, WireError(error)))
        } catch {
            answer(query, .failure(id: query.id, pageRowsFailed(query.store, error)))
        }
        return true
    }
}

/// Why an agent doesn't tell a store's rows from its pages.
enum PageRowsError: ActionableError {
    /// The rows come from pages, and nothing records how far anybody has read.
    case unacknowledged(StoreAddress)
    /// Others may use the directory of the copies.
    case notPrivate(FilePath)

    /// True if nothing but the request is at fault.
    var isOfRequest: Bool { if case .unacknowledged = self { true } else { false } }

    var errorCode: String {
        switch self {
        case .unacknowledged: "not_supported"
        case .notPrivate: "not_private"
        }
    }

    var message: String {
        switch self {
        case .unacknowledged(let store):
            "\(PrintablePath(bytes: store.bytes)): rows come from the store's pages, and nothing records who has read them"
        case .notPrivate(let path): "\(PrintablePath(path)) isn't a directory of the agent's user alone"
        }
    }

    var remedy: String {
        switch self {
        case .unacknowledged: "keep the token: it is valid while the agent's log of rows has what follows"
        case .notPrivate(let path): "remove it: rm -r \(path.shellWord)"
        }
    }

    var errorPath: FilePath? {
        switch self {
        case .unacknowledged: nil
        case .notPrivate(let path): path
        }
    }
}
