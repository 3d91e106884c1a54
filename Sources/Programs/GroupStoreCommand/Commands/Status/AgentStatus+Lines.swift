import AgentProtocol
import GroupStoreAgent
import LinuxSystem

/// The status for people.
extension AgentStatus {
    static func lines(_ type: String, _ row: JSONObject) -> [String] {
        switch type {
        case "group":
            let missing = row.bool("exists") == false ? "  (not there yet)" : ""
            return ["\(row.string("group") ?? "")  \(row.printablePath("directory"))\(missing)"]
        case "subscription": return ["    subscriber \(holder(row))  \(progress(ofSubscription: row))"]
        case "app":
            return ["  app \(row.printablePath("path")) to \(row.printablePath("to"))  \(state(row))"]
        case "legacy": return ["    legacy \(row.printablePath("path"))  \(state(row))"]
        default:
            let store =
                "  \(row.printablePath("store"))  \(state(row))  "
                + "\(Counted(row.integer("subscribers") ?? 0, "subscriber"))"
                + holders("presenters", of: row, prefix: ", presented by ")
            let last = row.object("last_relocation")
            // The receipt says more.
            let current = row.object("relocation").flatMap { state -> String? in
                last != nil && state.string("state") == "relocated" ? nil : relocation(state)
            }
            let relocations = [current, last.map(receipt)]
            let rows = row.object("rows_failed").map(unrecordedRows)
            return [store] + ([rows] + relocations).compactMap(\.self).map { "    \($0)" }
        }
    }

    /// Returns a store's or a legacy place's state, with the detail if there is one.
    static func state(_ row: JSONObject) -> String {
        let words = [row.string("state"), row.string("detail")].compactMap(\.self)
        return words.joined(separator: ": ")
    }

    static func holder(_ subscription: JSONObject) -> FileHolder {
        FileHolder(
            pid: Int32(clamping: subscription.integer("pid") ?? 0), program: subscription.string("program") ?? "?")
    }

    /// Returns how far a subscriber is behind, and since when or for how long it has not read.
    ///
    /// - Parameters:
    ///   - asDuration: For one that is behind, true for how long, false for since when.
    ///   - saysSilence: True to say for how long one that isn't behind has not read.
    static func progress(
        ofSubscription row: JSONObject, asDuration: Bool = false, saysSilence: Bool = true
    ) -> String {
        let behind = row.integer("behind") ?? 0
        let waiting = (row.integer("waiting_bytes") ?? 0) + (row.integer("unread_bytes") ?? 0)
        let unread = waiting == 0 ? "" : ", \(ByteCount(waiting)) unread"
        guard behind > 0 else {
            guard waiting > 0 else { return "up to date" }
            let seconds = saysSilence ? row.silentSeconds : nil
            let silence = seconds.map { $0 >= 1 ? ", has not read for \(Int($0)) s" : "" } ?? ""
            return "\(ByteCount(waiting)) unread\(silence)"
        }
        if asDuration, let seconds = row.lagSeconds {
            return "\(Counted(behind, "event")) behind\(unread), has not read for \(Int(seconds)) s"
        }
        let since = row.string("lagging_since").map { " since \(LocalTime($0))" } ?? ""
        return "\(Counted(behind, "event")) behind\(since)\(unread)"
    }

    /// Returns why a store's rows can't be recorded or told, in words.
    static func unrecordedRows(_ failure: JSONObject) -> String {
        "rows can't be recorded or told since \(failure.string("since").map { "\(LocalTime($0))" } ?? "?"): "
            + "\(failure.string("message") ?? "") (\(failure.string("hint") ?? ""))"
    }

    /// Returns a relocation's current or last state in words.
    static func relocation(_ row: JSONObject) -> String {
        let time = row.string("since").map { "\(LocalTime($0))" } ?? ""
        switch row.string("state") {
        case "relocating"?:
            let progress = StoreProgress(.relocating, row).map { ", \(words($0))" } ?? ""
            return "relocating since \(time)" + progress + holders("waiting_for", of: row, prefix: ", waiting for ")
        case "abandoned"?:
            let outcome = RelocationSentence.words(forOutcome: row.string("outcome") ?? "abandoned")
            let message = row.string("message").map { $0.isEmpty ? "" : ": \($0)" } ?? ""
            return "\(outcome) at \(time)\(message)"
        case let state: return "\(state ?? "") at \(time)"
        }
    }

    /// Returns a receipt in words.
    static func receipt(_ row: JSONObject) -> String {
        "relocated from \(row.printablePath("from"))\(RelocationSentence.effort(of: row)) at "
            + "\(LocalTime(row.string("at") ?? ""))"
    }

    /// Returns how far a relocation or migration is, in words.
    static func words(_ progress: StoreProgress) -> String {
        "\(Int((progress.fraction * 100).rounded(.down))) % \(progress.activity)"
    }

    private static func holders(_ key: String, of row: JSONObject, prefix words: String) -> String {
        let holders = row.objects(key).map(FileHolder.init)
        return holders.isEmpty ? "" : words + holders.list
    }

    private static func moreFiles(_ count: Int) -> String {
        let files =
            count == 1 ? "1 more file of the configuration has" : "\(count) more files of the configuration have"
        return "\(files) errors (groupstore agent --check)"
    }

    var summaryLines: [String] {
        let shown = summary.objects("configuration_problems").map(Self.configurationProblem)
        let others = Int(summary.integer("configuration_problem_count") ?? 0) - shown.count
        let more =
            others > 0 ? [Self.moreFiles(others)] : []
        return (summary.object("reload_failed").map { [Self.rejection($0)] } ?? []) + shown + more + [
            "agent \(summary.string("agent") ?? "?"), pid \(summary.integer("pid") ?? 0), "
                + "socket \(summary.printablePath("socket")), "
                + "\(Counted(summary.integer("subscribers") ?? 0, "subscriber"))"
        ]
    }

    static func configurationProblem(_ object: JSONObject) -> String {
        "\(object.string("message") ?? "") (\(object.string("hint") ?? ""))"
    }

    static func rejection(_ object: JSONObject) -> String {
        "the agent keeps its old configuration since \(object.string("at").map { "\(LocalTime($0))" } ?? "?"): "
            + "\(object.string("message") ?? "") (\(object.string("hint") ?? ""))"
    }
}
