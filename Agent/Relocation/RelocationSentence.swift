import AgentProtocol
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The outcome of a relocation in words: the same in a command's output, in the agent's log and in `status`.
package enum RelocationSentence {
    /// Returns the sentence for the members of a line of type `summary`.
    package static func text(of summary: JSONObject) -> String {
        let from = summary.printablePath("from")
        let to = summary.printablePath("to")
        let outcome = summary.string("outcome") ?? ""
        if summary.bool("dry_run") == true { return "would be: \(words(forOutcome: outcome))" }
        switch RelocationSummary.Outcome(rawValue: outcome) {
        case .relocated: return "relocated \(from) to \(to)\(effort(of: summary))"
        case .restored: return "restored \(to) from \(from)\(effort(of: summary))"
        case .undone: return "undone: the store is \(to) again"
        case .alreadyRelocated: return "already relocated: \(to)"
        case .merged: return "merged \(from) into \(to); both originals are in the archive"
        case .migrated: return "migrated \(to)"
        case .setAside: return "set aside \(summary.printablePath("set_aside")); \(to) is new"
        case .nothingToDo:
            return from == to ? "nothing to do: the store is \(to) already" : "nothing to do: no store at \(from)"
        case nil: return "\(words(forOutcome: outcome)): \(from) to \(to)"
        }
    }

    /// Returns the words for an outcome, which is one word in JSON: `already relocated` for `already_relocated`.
    package static func words(forOutcome outcome: String) -> String { outcome.replacing("_", with: " ") }

    /// Returns the method and the size in parentheses, of a summary or a receipt.
    package static func effort(of members: JSONObject) -> String {
        let facts = [members.string("method"), members.integer("bytes").map { "\(ByteCount($0))" }]
        let known = facts.compactMap(\.self)
        return known.isEmpty ? "" : " (\(known.joined(separator: ", ")))"
    }
}

extension JSONObject {
    /// Returns the path under `key` as it is printed; empty if there is none.
    package func printablePath(_ key: String) -> String {
        path(key).flatMap { FilePath(bytes: $0) }.map { PrintablePath($0).description } ?? ""
    }
}
