import AgentProtocol
import FileCoordination
import GroupContainers
import LinuxSystem
import SystemPackage

// Conversions between the presenter registry's values and those of the wire.

extension GroupContainer {
    /// The directory that is at the container's path now, for an agent, which may serve another one.
    var identityNow: RelocateOperation.Identity? {
        (try? current()).map { .init(device: $0.directory.identity.device, inode: $0.directory.identity.inode) }
    }
}

extension ItemAddress {
    init?(_ item: ClaimedItem) { self.init(group: item.container, path: item.path.bytes) }
}

extension FileHolder {
    package init(_ holder: StoreEvent.Holder) {
        self.init(pid: holder.pid, program: holder.program, isElsewhere: holder.isElsewhere)
    }
}

extension PresenterRequest {
    var answer: AnswerOperation.Request {
        switch self {
        case .save: .saved
        case .relinquish: .relinquished
        case .accommodateDeletion: .accommodated
        }
    }
}

extension PresenterMessage {
    /// Returns nil if an item's bytes can't be a path.
    init?(_ event: PresenterEvent, claim: UInt64, container: GroupContainer) {
        func item(_ address: ItemAddress) -> ClaimedItem? {
            FilePath(bytes: address.path).map { ClaimedItem(container: address.group, path: $0) }
        }
        switch event {
        case .save: self = .request(claim: claim, .save)
        case .relinquish(let toWriter): self = .request(claim: claim, .relinquish(toWriter ? .writer : .reader))
        case .accommodateDeletion(let address):
            self = .request(claim: claim, .accommodateDeletion(address.flatMap(item)))
        case .reacquire: self = .notice(claim: claim, .reacquire)
        case .didChange(let address): self = .notice(claim: claim, .didChange(address.flatMap(item)))
        case .didMove(let to, let address):
            guard let to = item(to) else { return nil }
            self = .notice(claim: claim, .didMove(to: to, subitem: address.flatMap(item)))
        }
    }

    /// Returns the same message with another claim number.
    func renumbered(_ number: (UInt64) -> UInt64) -> PresenterMessage {
        switch self {
        case .request(let claim, let request): .request(claim: number(claim), request)
        case .notice(let claim, let notice): .notice(claim: number(claim), notice)
        case .registration: self
        }
    }
}

extension ClaimOperation {
    /// Returns nil if an item can't be sent. `deadline` is the claimant's own. The agent gets a tenth less, at least 50
    /// ms and at most 0.5 s, so that its reply, which names the processes waited for, comes first even on a busy
    /// machine.
    init?(_ intents: [ClaimIntent], _ presenter: UInt64?, _ deadline: Duration) {
        var operations: [Intent] = []
        for intent in intents {
            guard let address = ItemAddress(intent.item) else { return nil }
            operations.append(Intent(item: address, writes: intent.writes, options: intent.optionWords))
        }
        let early = min(max(deadline.seconds / 10, 0.05), 0.5)
        let seconds = max(0, min(deadline.seconds - early, 86_400))
        self.init(intents: operations, presenter: presenter, deadline: seconds)
    }
}

extension ClaimIntent {
    fileprivate var optionWords: [String] {
        switch access {
        case .read(let options):
            FileCoordinator.readingOptionNames.filter { options.contains($0.value) }.map(\.key).sorted()
        case .write(let options):
            FileCoordinator.writingOptionNames.filter { options.contains($0.value) }.map(\.key).sorted()
        }
    }
}

extension ClaimSettlement {
    init(_ error: WireError) {
        let holders = error.holders.map(FileHolder.init)
        switch (error.code, holders.first) {
        case ("busy", _): self = .unanswered(holders)
        case ("presenter_failed", let holder?):
            // The agent's message is a whole sentence, which the claim's error begins with too.
            var reason = error.message[...]
            if let start = reason.firstRange(of: "can't let go") { reason = reason[start.upperBound...] }
            self = .refused(
                ClaimState.Refusal(presenter: holder, message: String(reason.trimmingPrefix(": "))))
        default: self = .failed(error.message)
        }
    }
}

extension JSONObject {
    /// Returns the claim numbers under `key`.
    func claims(_ key: String) -> [UInt64] {
        guard case .array(let values)? = self[key] else { return [] }
        return values.compactMap { value in
            if case .string(let text) = value { WireNumber(text, .claim)?.value } else { nil }
        }
    }
}
