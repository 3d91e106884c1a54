/// A request about the rows that changed in a store.
package enum HistoryOperation: Sendable, Equatable {
    /// Selects rows; a nil property selects all of them.
    package struct Filter: Sendable, Equatable {
        package var tables: [String]?
        package var entities: [String]?
        package var operations: [String]?
        package var authors: [String]?
        package var exceptAuthors: [String]?

        package init() {}
    }

    /// What a page says of the rows.
    package enum Content: Sendable, Equatable {
        /// Each change, without values.
        case changes
        /// Each row once, as it is now. `schema`: the digest that the requester knows; nil for any.
        case values(schema: String?)
    }

    /// Requests a page of the rows that changed after the token: one `row` each, then the reply with the next token.
    /// Without a token, the page begins at the start of the history.
    case changes(StoreAddress, since: String?, limit: Int64?, Filter, Content = .changes)
    /// Records that the named subscriber knows all changes up to the token. Later changes aren't purged.
    case acknowledge(StoreAddress, subscriber: String, token: String)

    /// The operation's name in `op`.
    package enum Request: String, CaseIterable, Sendable {
        case changes, ack
    }

    package var store: StoreAddress {
        switch self {
        case .changes(let store, _, _, _, _), .acknowledge(let store, _, _): store
        }
    }
}

extension HistoryOperation {
    init(_ request: Request, _ object: JSONObject) throws(WireError) {
        guard let store = object.store else {
            throw WireError(code: "bad_request", "store is missing or invalid", hint: "write GROUP_ID/NAME")
        }
        switch request {
        case .changes:
            let limit = object.integer("limit")
            guard limit.map({ (1...1000).contains($0) }) ?? (object["limit"] == nil) else {
                throw WireError(code: "bad_request", "limit is not a number from 1 to 1000")
            }
            var filter = Filter()
            filter.tables = try object.someNames("tables")
            filter.entities = try object.someNames("entities")
            filter.operations = try object.someNames("operations")
            filter.authors = try object.someNames("authors")
            filter.exceptAuthors = try object.someNames("except_authors")
            try filter.checkOperations()
            guard try object.optionalString("since").map(\.isWord) ?? true else {
                throw WireError(code: "bad_request", "since isn't a token", hint: "send the token that the agent sent")
            }
            self = .changes(store, since: object.string("since"), limit: limit, filter, try Content(object))
        case .ack:
            guard let name = object.string("subscriber"), name.isWord, name.utf8.count <= 256,
                let token = object.string("token"), token.isWord
            else {
                throw WireError(
                    code: "bad_request", "subscriber or token is missing or invalid",
                    hint: "a subscriber's name has at most 256 bytes")
            }
            self = .acknowledge(store, subscriber: name, token: token)
        }
    }

    func write(to object: inout JSONObject) {
        switch self {
        case .changes(let store, let since, let limit, let filter, let content):
            object["op"] = .string(Request.changes.rawValue)
            object.setStore(store)
            if let since { object["since"] = .string(since) }
            if let limit { object["limit"] = .integer(limit) }
            filter.write(to: &object)
            if case .values(let schema) = content {
                object["values"] = true
                if let schema { object["schema"] = .string(schema) }
            }
        case .acknowledge(let store, let subscriber, let token):
            object["op"] = .string(Request.ack.rawValue)
            object.setStore(store)
            object["subscriber"] = .string(subscriber)
            object["token"] = .string(token)
        }
    }
}

extension HistoryOperation.Content {
    fileprivate init(_ object: JSONObject) throws(WireError) {
        let isWanted = try object.flag("values")
        let schema = try object.optionalString("schema")
        guard schema.map({ $0.utf8.count <= 128 && $0.isWord && isWanted }) ?? true else {
            throw WireError(
                code: "bad_request", "schema isn't a digest, or values is missing",
                hint: "send the schema of an earlier batch, with values")
        }
        self = isWanted ? .values(schema: schema) : .changes
    }
}

extension HistoryOperation.Filter {
    private var all: [(key: String, names: [String]?)] {
        [
            ("tables", tables), ("entities", entities), ("operations", operations), ("authors", authors),
            ("except_authors", exceptAuthors),
        ]
    }

    /// True if the filter selects all rows.
    package var isEmpty: Bool { all.allSatisfy { $0.names == nil } }

    /// True if only a history that the store itself keeps can tell what the filter selects.
    package var needsHistory: Bool { entities != nil || authors != nil || !(exceptAuthors ?? []).isEmpty }

    func checkOperations() throws(WireError) {
        guard (operations ?? []).allSatisfy(["insert", "update", "delete"].contains) else {
            throw WireError(code: "bad_request", "operations must be insert, update or delete")
        }
    }

    func write(to object: inout JSONObject) {
        for (key, names) in all {
            if let names { object[key] = .array(names.map { .string($0) }) }
        }
    }

    /// Returns whether the filter selects a row in its wire form. A row without an entity may be of any.
    package func admits(_ row: JSONObject) -> Bool {
        if let entities, let entity = row.string("entity"), !entities.contains(entity) { return false }
        if let operations, !operations.contains(row.string("op") ?? "") { return false }
        let author = row.string("author")
        if let authors, !(author.map(authors.contains) ?? false) { return false }
        return !(author.map { exceptAuthors?.contains($0) ?? false } ?? false)
    }
}

extension String {
    /// True for a nonempty string without NUL, at which it would end as a program's argument.
    var isWord: Bool { !isEmpty && !utf8.contains(0) }
}
