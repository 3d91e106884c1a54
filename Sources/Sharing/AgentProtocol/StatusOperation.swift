/// A request for the agent's status: groups and stores, one object each, before the reply.
package struct StatusOperation: Sendable, Equatable {
    /// The only group to report; nil for all.
    package var group: String?
    /// The only store to report, with its group; nil for all.
    package var store: StoreAddress?
    /// True for rows without what the agent would have to read from the disk or from /proc: a client that asks every
    /// second needs only what changes.
    package var isBrief: Bool

    package init(group: String? = nil, store: StoreAddress? = nil, isBrief: Bool = false) {
        self.group = group
        self.store = store
        self.isBrief = isBrief
    }

    /// The group that the request is about; nil if it is about all.
    package var onlyGroup: String? { store?.group ?? group }

    init(_ object: JSONObject) throws(WireError) {
        group = try object.optionalString("group")
        if object["store"] != nil || object["store_b64"] != nil {
            guard let store = object.store else {
                throw WireError(code: "bad_request", "store is invalid", hint: "write GROUP_ID/NAME")
            }
            self.store = store
        }
        isBrief = try object.flag("brief")
    }

    func write(to object: inout JSONObject) {
        object["op"] = "status"
        if let group { object["group"] = .string(group) }
        if let store { object.setStore(store) }
        if isBrief { object["brief"] = true }
    }
}
