/// The wire name of a group container's item in claims and presenters: `GROUP_ID/PATH`, under `store`. A store's
/// database stands for all of its files.
package struct ItemAddress: Hashable, Sendable {
    package let group: String
    /// The path relative to the group's directory, without `.`, `..` and empty names; empty for the directory itself.
    package let path: [UInt8]

    /// Creates an address, or returns nil if the path doesn't lie inside the directory.
    package init?(group: String, path: [UInt8]) {
        let slash = UInt8(ascii: "/")
        let names = path.split(separator: slash, omittingEmptySubsequences: false)
        let isPlain = names.allSatisfy { !$0.isEmpty && $0.count <= 255 && $0 != [0x2E] && $0 != [0x2E, 0x2E] }
        guard !group.isEmpty, !group.utf8.contains(slash), path.count < 4096, !path.contains(0),
            path.isEmpty || isPlain
        else { return nil }
        self.group = group
        self.path = path
    }

    /// Parses `GROUP_ID/PATH`; returns nil for anything else.
    package init?(bytes: [UInt8]) {
        let slash = bytes.firstIndex(of: UInt8(ascii: "/")) ?? bytes.endIndex
        guard let group = String(validating: bytes[..<slash], as: UTF8.self) else { return nil }
        self.init(group: group, path: Array(bytes[slash...].dropFirst()))
    }

    package var bytes: [UInt8] { Array(group.utf8) + (path.isEmpty ? [] : [UInt8(ascii: "/")] + path) }
}

/// The number of a presenter or a claim, such as `p3` or `c7`. The agent assigns it; it has no meaning for another
/// agent.
package struct WireNumber: Hashable, Sendable {
    package enum Kind: String, Sendable { case presenter = "p", claim = "c" }

    package let kind: Kind
    package let value: UInt64

    package init(_ kind: Kind, _ value: UInt64) {
        self.kind = kind
        self.value = value
    }

    package init?(_ text: String, _ kind: Kind) {
        guard text.hasPrefix(kind.rawValue), let value = UInt64(text.dropFirst()) else { return nil }
        self.init(kind, value)
    }

    package var json: JSONValue { .string(kind.rawValue + String(value)) }
}

/// The operation `present`: this connection presents the item from now on.
package struct PresentOperation: Sendable, Equatable {
    package var item: ItemAddress
    /// The process identifier and program name that the client reports, used for clients in another PID namespace: the
    /// kernel doesn't identify them there.
    package var pid: Int32?
    package var program: String?
    /// The model versions that the client can open, each by its name, an identifier or its checksum; nil for any.
    package var models: [String]?

    package static let maxModels = 256

    package init(item: ItemAddress, pid: Int32? = nil, program: String? = nil) {
        self.item = item
        self.pid = pid
        self.program = program
    }

    init(_ object: JSONObject) throws(WireError) {
        item = try object.requiredItem()
        pid = object.integer("pid").flatMap { Int32(exactly: $0) }
        program = object.string("program")?.shortened(toWireLength: 64)
        guard let value = object["models"] else { return }
        guard case .array(let values) = value, values.count <= Self.maxModels else { throw .badModels }
        var names: [String] = []
        for value in values {
            guard case .string(let name) = value, !name.isEmpty, name.utf8.count <= 256 else { throw .badModels }
            names.append(name)
        }
        models = names
    }

    func write(to object: inout JSONObject) {
        object.setPath("store", bytes: item.bytes)
        object["pid"] = pid.map { .integer(Int64($0)) }
        object["program"] = program.map { .string($0) }
        object["models"] = models.map { .array($0.map { .string($0) }) }
    }
}

extension WireError {
    fileprivate static var badModels: WireError {
        WireError(
            code: "bad_request", "models isn't a list of at most \(PresentOperation.maxModels) versions",
            hint: "name each by its name, an identifier or its checksum")
    }
}

/// The operations `saved`, `relinquished` and `accommodated`: the presenter has done what a claim asked of it, or
/// failed to.
package struct AnswerOperation: Sendable, Equatable {
    package enum Request: String, Sendable, CaseIterable {
        case saved, relinquished, accommodated
    }

    package var request: Request
    package var claim: UInt64
    /// The presenter; nil for the only one of this connection that was asked.
    package var presenter: UInt64?
    /// The reason why it failed; nil if it succeeded.
    package var failure: String?

    /// The longest text of a failure in a line, in bytes.
    package static let maxFailureLength = 4096

    /// Creates an answer. A long text of a failure is shortened: an answer without it would be consent.
    package init(_ request: Request, claim: UInt64, presenter: UInt64?, failure: String? = nil) {
        self.request = request
        self.claim = claim
        self.presenter = presenter
        self.failure = failure?.shortened(toWireLength: Self.maxFailureLength)
    }

    init(_ request: Request, _ object: JSONObject) throws(WireError) {
        self.request = request
        claim = try object.requiredNumber("claim", .claim)
        presenter = object["presenter"] == nil ? nil : try object.requiredNumber("presenter", .presenter)
        failure = Self.failure(in: object)?.shortened(toWireLength: Self.maxFailureLength)
    }

    /// Returns the reason, whatever JSON value it is. A line that has lost a member is no consent either.
    private static func failure(in object: JSONObject) -> String? {
        switch object["error"] {
        case .string(let text)?: text
        case nil, .null?: object.bool("truncated") == true ? "the answer's line was shortened" : nil
        case let value?: value.text
        }
    }

    func write(to object: inout JSONObject) {
        object["claim"] = WireNumber(.claim, claim).json
        object["presenter"] = presenter.map { WireNumber(.presenter, $0).json }
        object["error"] = failure.map { .string($0) }
    }
}

/// The operation `claim`: asks the presenters of these items. The client acquires the locks itself.
package struct ClaimOperation: Sendable, Equatable {
    package struct Intent: Sendable, Equatable {
        package var item: ItemAddress
        package var writes: Bool
        package var options: [String]

        package init(item: ItemAddress, writes: Bool, options: [String]) {
            self.item = item
            self.writes = writes
            self.options = options
        }
    }

    package var intents: [Intent]
    /// The client's own presenter, which isn't asked.
    package var presenter: UInt64?
    /// The time in seconds that the presenters have to answer.
    package var deadline: Double

    package static let maxIntents = 64

    package init(intents: [Intent], presenter: UInt64?, deadline: Double) {
        self.intents = intents
        self.presenter = presenter
        self.deadline = deadline
    }

    init(_ object: JSONObject) throws(WireError) {
        if case .array(let values)? = object["intents"] {
            guard !values.isEmpty, values.count <= Self.maxIntents else {
                throw WireError(code: "bad_request", "intents must have 1 to \(Self.maxIntents) elements")
            }
            var found: [Intent] = []
            for value in values {
                guard case .object(let intent) = value else {
                    throw WireError(code: "bad_request", "an intent isn't an object")
                }
                found.append(try Intent(intent))
            }
            intents = found
        } else {
            intents = [try Intent(object)]
        }
        presenter = object["presenter"] == nil ? nil : try object.requiredNumber("presenter", .presenter)
        deadline = object.seconds("deadline") ?? 30
        guard deadline >= 0, deadline <= 86_400 else {
            throw WireError(code: "bad_request", "deadline must be 0 to 86400 seconds")
        }
    }

    func write(to object: inout JSONObject) {
        object["intents"] = .array(intents.map { .object($0.json) })
        object["presenter"] = presenter.map { WireNumber(.presenter, $0).json }
        object["deadline"] = .number(deadline)
    }
}

extension ClaimOperation.Intent {
    init(_ object: JSONObject) throws(WireError) {
        item = try object.requiredItem()
        switch object.string("access") {
        case "read"?: writes = false
        case "write"?: writes = true
        default: throw WireError(code: "bad_request", "access is neither read nor write")
        }
        options = []
        if case .array(let words)? = object["options"] {
            for word in words { if case .string(let text) = word { options.append(text) } }
        }
    }

    var json: JSONObject {
        var object = JSONObject()
        object.setPath("store", bytes: item.bytes)
        object["access"] = writes ? "write" : "read"
        if !options.isEmpty { object["options"] = .array(options.map { .string($0) }) }
        return object
    }
}

/// The operation `release`: ends a claim.
package struct ReleaseOperation: Sendable, Equatable {
    package struct Move: Sendable, Equatable {
        package var from: ItemAddress
        package var to: ItemAddress

        package init(from: ItemAddress, to: ItemAddress) {
            self.from = from
            self.to = to
        }
    }

    package var claim: UInt64
    /// False if no access took place under the claim.
    package var tookPlace: Bool
    package var moves: [Move]
    /// True if another request has further moves. That one ends the claim.
    package var hasMore: Bool

    package init(claim: UInt64, tookPlace: Bool, moves: [Move] = [], hasMore: Bool = false) {
        self.claim = claim
        self.tookPlace = tookPlace
        self.moves = moves
        self.hasMore = hasMore
    }

    /// Returns the requests that end a claim: several if its moves don't fit one line.
    package static func all(claim: UInt64, tookPlace: Bool, moves: [Move]) -> [ReleaseOperation] {
        var requests: [ReleaseOperation] = []
        var current = ReleaseOperation(claim: claim, tookPlace: tookPlace, moves: [], hasMore: true)
        var length = 0
        for move in moves {
            let added = JSONValue.object(move.json).text.utf8.count + 1
            if current.moves.count == ClaimOperation.maxIntents || length + added > WireLine.maxLength / 2 {
                requests.append(current)
                (current.moves, length) = ([], 0)
            }
            current.moves.append(move)
            length += added
        }
        current.hasMore = false
        return requests + [current]
    }

    init(_ object: JSONObject) throws(WireError) {
        claim = try object.requiredNumber("claim", .claim)
        tookPlace = object.bool("took_place") ?? true
        hasMore = object.bool("more") ?? false
        moves = []
        guard case .array(let values)? = object["moves"] else { return }
        guard values.count <= ClaimOperation.maxIntents else {
            throw WireError(
                code: "bad_request", "moves has more than \(ClaimOperation.maxIntents) elements",
                hint: "send them in several requests, all but the last one with more: true")
        }
        for case .object(let move) in values {
            guard let from = move.path("from").flatMap(ItemAddress.init(bytes:)),
                let to = move.path("to").flatMap(ItemAddress.init(bytes:))
            else { throw WireError(code: "bad_request", "a move must be {\"from\":\"GROUP_ID/PATH\",\"to\":…}") }
            moves.append(Move(from: from, to: to))
        }
    }

    func write(to object: inout JSONObject) {
        object["claim"] = WireNumber(.claim, claim).json
        object["took_place"] = .bool(tookPlace)
        if !moves.isEmpty { object["moves"] = .array(moves.map { .object($0.json) }) }
        if hasMore { object["more"] = true }
    }
}

extension ReleaseOperation.Move {
    fileprivate var json: JSONObject {
        var object = JSONObject()
        object.setPath("from", bytes: from.bytes)
        object.setPath("to", bytes: to.bytes)
        return object
    }
}

extension JSONObject {
    fileprivate func requiredItem() throws(WireError) -> ItemAddress {
        guard let item = path("store").flatMap(ItemAddress.init(bytes:)) else {
            throw WireError(code: "bad_request", "store is missing or not an item", hint: "write GROUP_ID/NAME")
        }
        return item
    }

    func requiredNumber(_ key: String, _ kind: WireNumber.Kind) throws(WireError) -> UInt64 {
        guard let number = string(key).flatMap({ WireNumber($0, kind) }) else {
            throw WireError(
                code: "bad_request", "\(key) is missing or invalid", hint: "send the value that the agent sent")
        }
        return number.value
    }
}
