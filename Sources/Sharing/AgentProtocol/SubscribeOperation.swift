/// A request to receive a store's changes.
package struct SubscribeOperation: Sendable, Equatable {
    package var store: StoreAddress
    /// The token after which to begin; later events come first.
    package var since: String?
    /// Selects changes that may affect one of these tables; nil selects all.
    package var tables: TableFilter?
    /// True if changes must name their tables. The agent determines them only if a subscriber asks for it; that takes
    /// some of the time in which a change could be published.
    package var wantsDetail = true
    /// Selects changes with a matching row, if the store's history tells which rows changed.
    package var filter = HistoryOperation.Filter()
    /// True to send the changed rows along, if they are few.
    package var wantsRows = false
    /// True if tokens must name a position in the store's history too.
    package var wantsDurableTokens = false
    /// True to send a bookmark now and then, which tells how far the events that were left out have advanced.
    package var wantsBookmarks = false
    /// True to send how far a relocation or migration of the store is.
    package var wantsProgress = false

    package init(_ store: StoreAddress, since: String? = nil, tables: TableFilter? = nil) {
        self.store = store
        self.since = since
        self.tables = tables
    }

    /// True if the subscription needs the store's history.
    package var readsHistory: Bool {
        !filter.isEmpty || wantsRows || wantsDurableTokens || since.flatMap { SubscriptionToken($0) }?.history != nil
    }
}

extension SubscribeOperation {
    init(_ object: JSONObject) throws(WireError) {
        guard let store = object.store else {
            throw WireError(code: "bad_request", "store is missing or invalid", hint: "write GROUP_ID/NAME")
        }
        self.init(
            store, since: try object.optionalString("since"),
            tables: try object.someNames("tables").map { TableFilter($0) })
        filter.entities = try object.someNames("entities")
        filter.operations = try object.someNames("operations")
        filter.authors = try object.someNames("authors")
        filter.exceptAuthors = try object.someNames("except_authors")
        try filter.checkOperations()
        wantsRows = try object.flag("rows")
        wantsDurableTokens = try object.flag("durable")
        wantsBookmarks = try object.flag("bookmarks")
        wantsProgress = try object.flag("progress")
        wantsDetail = try object.flag("detail", unlessThere: true)
        guard wantsDetail || (tables == nil && filter.isEmpty && !wantsRows) else {
            throw WireError(
                code: "bad_request", "detail is false, but filters or rows need it",
                hint: "omit detail, or omit the filters and rows")
        }
    }

    func write(to object: inout JSONObject) {
        object["op"] = "subscribe"
        object.setStore(store)
        if let since { object["since"] = .string(since) }
        if let tables { object["tables"] = .array(tables.names.map { .string($0) }) }
        filter.write(to: &object)
        let flags = [
            ("rows", wantsRows), ("durable", wantsDurableTokens), ("bookmarks", wantsBookmarks),
            ("progress", wantsProgress),
        ]
        for (key, isWanted) in flags where isWanted { object[key] = true }
        if !wantsDetail { object["detail"] = false }
    }
}

extension JSONObject {
    func optionalString(_ key: String) throws(WireError) -> String? {
        switch self[key] {
        case nil, .null?: return nil
        case .string(let value)?: return value
        default: throw WireError(code: "bad_request", "\(key) is not a string")
        }
    }

    func flag(_ key: String, unlessThere absent: Bool = false) throws(WireError) -> Bool {
        switch self[key] {
        case nil, .null?: return absent
        case .bool(let value)?: return value
        default: throw WireError(code: "bad_request", "\(key) is neither true nor false")
        }
    }

    /// Returns a list of at least one name; nil if the key is missing.
    func someNames(_ key: String) throws(WireError) -> [String]? {
        let wrong = WireError(
            code: "bad_request", "\(key) is not a list of names", hint: "write [\"NAME\"], or omit it")
        switch self[key] {
        case nil, .null?: return nil
        case .array(let values)? where !values.isEmpty:
            var names: [String] = []
            for value in values {
                guard case .string(let name) = value, name.isWord else { throw wrong }
                names.append(name)
            }
            return names
        default: throw wrong
        }
    }
}
