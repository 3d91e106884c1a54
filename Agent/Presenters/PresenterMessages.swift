import AgentProtocol
import FileCoordination
import LinuxSystem
import SystemPackage

// Conversions between the wire's and the registry's values for claims and presenters.

extension ClaimedItem {
    /// Returns nil if the bytes can't be a path.
    init?(_ address: ItemAddress) {
        guard let path = FilePath(bytes: address.path) else { return nil }
        self.init(container: address.group, path: path)
    }
}

extension ItemAddress {
    init?(_ item: ClaimedItem) { self.init(group: item.container, path: item.path.bytes) }
}

extension StoreAddress {
    /// Returns nil if the item isn't directly in the group's directory.
    init?(_ item: ClaimedItem) {
        guard item.path.components.count == 1, let name = item.path.lastComponent else { return nil }
        self.init(group: item.container, name: name.bytes)
    }
}

extension StoreEvent.Holder {
    init(_ holder: FileHolder) {
        self.init(pid: holder.pid, program: holder.program, isElsewhere: holder.isElsewhere)
    }
}

extension PresenterRequest {
    /// The operation that answers it.
    var answer: AnswerOperation.Request {
        switch self {
        case .save: .saved
        case .relinquish: .relinquished
        case .accommodateDeletion: .accommodated
        }
    }
}

extension PresenterEvent {
    /// Returns the event; nil if the item can't be encoded.
    static func of(_ message: PresenterMessage) -> (claim: UInt64, event: PresenterEvent?) {
        switch message {
        case .request(let claim, .save): (claim, .save)
        case .request(let claim, .relinquish(let accessor)): (claim, .relinquish(toWriter: accessor == .writer))
        case .request(let claim, .accommodateDeletion(let item)):
            (claim, .accommodateDeletion(item.flatMap(ItemAddress.init)))
        case .notice(let claim, .reacquire): (claim, .reacquire)
        case .notice(let claim, .didChange(let item)): (claim, .didChange(item.flatMap(ItemAddress.init)))
        case .notice(let claim, .didMove(let to, let subitem)):
            (claim, ItemAddress(to).map { .didMove(to: $0, subitem: subitem.flatMap(ItemAddress.init)) })
        // The reply to the registration reports it.
        case .registration: (0, nil)
        }
    }

    var wantsAnswer: Bool {
        switch self {
        case .save, .relinquish, .accommodateDeletion: true
        case .reacquire, .didChange, .didMove: false
        }
    }
}

extension ClaimIntent {
    init(_ intent: ClaimOperation.Intent, _ item: ClaimedItem) throws(WireError) {
        if intent.writes {
            var options: FileCoordinator.WritingOptions = []
            for word in intent.options { options.formUnion(try Self.option(word, FileCoordinator.writingOptionNames)) }
            self.init(item, .write(options))
        } else {
            var options: FileCoordinator.ReadingOptions = []
            for word in intent.options { options.formUnion(try Self.option(word, FileCoordinator.readingOptionNames)) }
            self.init(item, .read(options))
        }
    }

    private static func option<Option>(_ word: String, _ known: [String: Option]) throws(WireError) -> Option {
        guard let option = known[word] else {
            throw WireError(
                code: "bad_request", "unknown option \(word.prefix(64))",
                hint: known.keys.sorted().joined(separator: ", "))
        }
        return option
    }
}
