import AgentProtocol
import ChangeFeed

/// A position in a store that is watched without an agent. It says whether the store was written since, and no more:
/// there is no log of what happened meanwhile.
package struct DirectToken: Equatable, Sendable, CustomStringConvertible {
    /// The store's position; nil if there was no readable store.
    let position: StorePosition?

    init(_ position: StorePosition?) { self.position = position }

    private static let start = "file1-"

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

    /// Returns the event that stands for everything that happened between this token and a later one; nil if nothing
    /// did.
    package func event(until later: DirectToken) -> StoreEvent? {
        switch (position, later.position) {
        case (nil, nil): nil
        case (nil, .some): .reset(.appeared)
        case (.some, nil): .reset(.vanished)
        case (let former?, let latter?):
            switch former.difference(to: latter) {
            case .none: nil
            case .changed: .change(.unknown)
            case .replaced: .reset(.replaced)
            }
        }
    }
}
