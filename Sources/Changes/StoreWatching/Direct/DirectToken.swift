import AgentProtocol
import ChangeFeed

/// A position in a store that is watched without an agent. It says whether the store was written since, and no more:
/// there is no log of what happened meanwhile.
package struct DirectToken: Equatable, Sendable, CustomStringConvertible {
    /// The store's position; nil if there was no readable store.
    let position: StorePosition?

    init(_ position: StorePosition?) { self.position = position }

    /// The beginning of each description.
    package static let start = "file1-"

    /// Parses a token. Returns nil for an agent's token, or any other text.
    package init?(_ text: String) {
        guard text.hasPrefix(Self.start) else { return nil }
        let rest = text.dropFirst(Self.start.count)
        guard let position = StorePosition(rest) else {
            guard rest.isEmpty else { return nil }
            self.init(nil)
            return
        }
        self.init(position)
    }

    package var description: String { Self.start + (position?.description ?? "") }

    /// Appends the bytes of the description that follow `start`.
    package func writePosition(to bytes: inout [UInt8]) { position?.write(to: &bytes) }

    /// Returns the event that stands for everything that happened between this token and a later one; nil if nothing
    /// did.
    package func event(until later: DirectToken) -> StoreEvent? {
        StoreEvent(from: position, to: later.position)
    }
}

extension StoreEvent {
    /// The event that stands for everything that happened between two positions of one path; nil if nothing did. Nil
    /// for a position stands for no readable store.
    init?(from former: StorePosition?, to later: StorePosition?) {
        switch (former, later) {
        case (nil, nil): return nil
        case (nil, .some): self = .reset(.appeared)
        case (.some, nil): self = .reset(.vanished)
        case (let former?, let later?):
            switch former.difference(to: later) {
            case .none: return nil
            case .changed: self = .change(.unknown)
            case .replaced: self = .reset(.replaced)
            }
        }
    }
}
