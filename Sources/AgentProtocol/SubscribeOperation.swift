/// A wish to be told of a store's changes.
package struct SubscribeOperation: Sendable, Equatable {
    package let store: StoreAddress
    /// Tell first of what happened after this token.
    package var since: String?
    /// Of changes that may be about one of these only; nil: of all.
    package var tables: TableFilter?
    /// Changes are to say which tables. It is found out where somebody wants to know, and takes the agent some of the time in
    /// which a change could be told.
    package var wantsDetail = true
    /// Of changes with such a row only, where the store's history says which rows changed.
    package var filter = HistoryOperation.Filter()
    /// The rows travel along, where there are few.
    package var wantsRows = false
    /// Tokens are to name a place in the store's history, too.
    package var wantsDurableTokens = false
    /// Tell now and then how far what is left out has come.
    package var wantsBookmarks = false

    package init(_ store: StoreAddress, since: String? = nil, tables: TableFilter? = nil) {
        self.store = store
        self.since = since
        self.tables = tables
    }

    /// Whether it takes the store's history to say what it is told.
    package var readsHistory: Bool {
        !filter.isEmpty || wantsRows || wantsDurableTokens || since.flatMap { SubscriptionToken($0) }?.history != nil
    }
}

extension SubscribeOperation {
    init(_ object: JSONObject) throws(WireError) {
        guard let store = object.store else {
            throw WireError(code: "bad_request", "store is missing or no store", hint: "write GROUP_ID/NAME")
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
        wantsDetail = try object.flag("detail", unlessThere: true)
        guard wantsDetail || (tables == nil && filter.isEmpty && !wantsRows) else {
            throw WireError(
                code: "bad_request", "detail is false, and the subscription asks for some",
                hint: "leave out detail, or the filters and rows")
        }
    }

    func write(to object: inout JSONObject) {
        object["op"] = "subscribe"
        object.setStore(store)
        if let since { object["since"] = .string(since) }
        if let tables { object["tables"] = .array(tables.names.map { .string($0) }) }
        filter.write(to: &object)
        for (key, isWanted) in [("rows", wantsRows), ("durable", wantsDurableTokens), ("bookmarks", wantsBookmarks)]
        where isWanted {
            object[key] = true
        }
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

    fileprivate func flag(_ key: String, unlessThere absent: Bool = false) throws(WireError) -> Bool {
        switch self[key] {
        case nil, .null?: return absent
        case .bool(let value)?: return value
        default: throw WireError(code: "bad_request", "\(key) is neither true nor false")
        }
    }

    /// A list of at least one name; nil when it isn't there.
    func someNames(_ key: String) throws(WireError) -> [String]? {
        let wrong = WireError(
            code: "bad_request", "\(key) is not a list of names", hint: "write [\"NAME\"], or leave it out")
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
