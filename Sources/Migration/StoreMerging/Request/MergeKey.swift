/// The properties or columns by which a user wants objects to be matched: `Note=uuid`, `Page=note,number`, `Log=*`.
package struct MergeKey: Sendable, Equatable {
    package let name: String
    /// Empty if whole objects are compared.
    package let properties: [String]

    package var comparesWholeObjects: Bool { properties.isEmpty }

    /// Parses the form of the command line; returns nil if it isn't one.
    package init?(_ text: String) {
        guard let separator = text.firstIndex(of: "="), separator != text.startIndex else { return nil }
        name = String(text[..<separator])
        let list = text[text.index(after: separator)...]
        guard list != "*" else {
            properties = []
            return
        }
        let parts = list.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        // SQLite compares names byte by byte, which `String` does not.
        guard parts.allSatisfy({ !$0.isEmpty && $0 != "*" }), Set(parts.map { Array($0.utf8) }).count == parts.count
        else { return nil }
        properties = parts
    }

    /// The form of the command line.
    package var text: String { name + "=" + (properties.isEmpty ? "*" : properties.joined(separator: ",")) }
}

/// A rule that decides which of two matched objects that differ is kept.
package enum MergePreference: Sendable, Equatable {
    case group
    case legacy
    /// The one with the greater value of this attribute or column.
    case newer(String)

    /// Parses the form of the command line; returns nil if it isn't one.
    package init?(_ text: String) {
        switch text {
        case "group": self = .group
        case "legacy": self = .legacy
        default:
            guard text.hasPrefix("newer:"), text.count > 6 else { return nil }
            self = .newer(String(text.dropFirst(6)))
        }
    }

    /// The form of the command line.
    package var text: String {
        switch self {
        case .group: "group"
        case .legacy: "legacy"
        case .newer(let attribute): "newer:" + attribute
        }
    }
}

/// The options of a merge: keys, references and preferences.
package struct MergeOptions: Sendable, Equatable {
    package var keys: [MergeKey] = []
    /// References that the schema doesn't declare.
    package var references: [MergeReference] = []
    /// The rules in the order in which they are asked; empty for none.
    package var preferences: [MergePreference] = []

    /// The number of matched objects that differ, of an entity, that a report shows.
    package var differencesShown = 3

    package init() {}

    /// True if the legacy store's object is kept in any case.
    var alwaysPrefersLegacy: Bool { preferences.first == .legacy }
}
