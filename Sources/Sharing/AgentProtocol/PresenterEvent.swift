/// A request or notice that the agent sends to a presenter.
package enum PresenterEvent: Sendable, Equatable {
    /// Asks the presenter to save. The reply is `saved`.
    case save
    /// Asks the presenter to let go of its item. The reply is `relinquished`.
    case relinquish(toWriter: Bool)
    /// Asks the presenter to prepare for a deletion. The reply is `accommodated`. The item is in the presented
    /// directory; nil is the presented item itself.
    case accommodateDeletion(ItemAddress?)
    case reacquire
    case didChange(ItemAddress?)
    case didMove(to: ItemAddress, subitem: ItemAddress?)

    package var type: String {
        switch self {
        case .save: "save"
        case .relinquish: "relinquish"
        case .accommodateDeletion: "accommodate_deletion"
        case .reacquire: "reacquire"
        case .didChange: "did_change"
        case .didMove: "did_move"
        }
    }

    /// Parses an event. Returns nil if the type isn't a presenter's, or a member is missing.
    package init?(type: String, _ object: JSONObject) {
        let item = object.path("item").flatMap(ItemAddress.init(bytes:))
        switch type {
        case "save": self = .save
        case "relinquish": self = .relinquish(toWriter: object.string("to") != "reader")
        case "accommodate_deletion": self = .accommodateDeletion(item)
        case "reacquire": self = .reacquire
        case "did_change": self = .didChange(item)
        case "did_move":
            guard let to = object.path("to").flatMap(ItemAddress.init(bytes:)) else { return nil }
            self = .didMove(to: to, subitem: item)
        default: return nil
        }
    }

    /// Returns the event's line. `deadline` is the time in seconds that the presenter has to reply, for events that
    /// want a reply.
    package func json(
        item presented: ItemAddress, presenter: UInt64, claim: UInt64, path: [UInt8]?, deadline: Double?
    ) -> JSONObject {
        var object: JSONObject = ["type": .string(type)]
        object.setPath("store", bytes: presented.bytes)
        object["presenter"] = WireNumber(.presenter, presenter).json
        object["claim"] = WireNumber(.claim, claim).json
        switch self {
        case .save: break
        case .relinquish(let toWriter): object["to"] = toWriter ? "writer" : "reader"
        case .accommodateDeletion(let item), .didChange(let item):
            if let item { object.setPath("item", bytes: item.bytes) }
        case .reacquire: if let path { object.setPath("path", bytes: path) }
        case .didMove(let to, let item):
            object.setPath("to", bytes: to.bytes)
            if let path { object.setPath("path", bytes: path) }
            if let item { object.setPath("item", bytes: item.bytes) }
        }
        if let deadline { object["deadline"] = .number(deadline) }
        return object
    }
}
