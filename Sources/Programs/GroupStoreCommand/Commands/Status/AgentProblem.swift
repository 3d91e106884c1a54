import AgentProtocol
import CommandSupport
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// A persistent problem that the agent reports.
struct AgentProblem {
    /// The kind of check, a code for scripts.
    let check: String
    /// The path concerned; nil if the problem isn't about one path.
    var path: FilePath?
    /// The store concerned, `GROUP_ID/NAME`.
    var store: StoreAddress?
    /// One word for people, such as `conflict`.
    let word: String
    /// The code of the error.
    var code: String?
    /// The message, including a remedy.
    let message: String
    /// The exit code of a command with the same result.
    let exitCode: Int32

    /// The problem on one line.
    var line: String {
        let subject = path.map { "\(PrintablePath($0)): " } ?? ""
        return "\(word): \(subject)\(message)"
    }

    var record: JSONObject {
        var object: JSONObject = ["type": "problem", "check": .string(check)]
        if let store { object.setPath("store", bytes: store.bytes) }
        if let path { object.setPath("path", bytes: path.bytes) }
        object["code"] = code.map { .string($0) }
        object["message"] = .string(message)
        object["exit"] = .integer(Int64(exitCode))
        return object
    }
}

extension AgentStatus {
    /// The rows of places that something is relocated from.
    private static let places: Set = ["legacy", "app"]

    /// The problems that need a person: conflicts, refused or failed relocations, and a configuration that
    /// can't be read.
    var problems: [AgentProblem] {
        let places = rows.filter { Self.places.contains($0.type) }.compactMap { row -> AgentProblem? in
            guard let code = row.object.integer("exit") else { return nil }
            let state = row.object.string("state") ?? ""
            return AgentProblem(
                check: "relocation", path: row.object.path("path").flatMap { FilePath(bytes: $0) },
                store: row.object.store, word: state, code: row.object.string("code"),
                message: row.object.string("detail") ?? state, exitCode: Int32(clamping: code))
        }
        let reload = summary.object("reload_failed").map {
            AgentProblem(
                check: "reload", word: "reload", message: Self.rejection($0),
                exitCode: ExitStatus.configuration.rawValue)
        }
        let files = summary.objects("configuration_problems").map { problem in
            AgentProblem(
                check: "agent_configuration", word: "configuration", message: Self.configurationProblem(problem),
                exitCode: ExitStatus.configuration.rawValue)
        }
        return places + [reload].compactMap { $0 } + files
    }

    /// All that `status --check` reports: stores in danger, the problems, stores that wait for long, stores that aren't
    /// followed or whose rows can't be recorded, and stuck subscribers.
    func allProblems(_ limits: ProblemLimits) -> [AgentProblem] {
        hazards + problems + waiting(after: limits.waiting) + unfollowed + unrecorded
            + stuckSubscribers(after: limits.stuckSubscriber)
    }

    /// The states in which commits to a store can be lost, without those that only make a loss possible.
    var hazards: [AgentProblem] {
        rows.filter { $0.type == "store" }.flatMap { row in
            row.object.objects("hazards").map(HazardDescription.init).filter { !$0.isWarning }.map { hazard in
                AgentProblem(
                    check: "hazard", store: row.object.store, word: "hazard", code: hazard.code,
                    message: hazard.hint.isEmpty ? hazard.message : "\(hazard.message) (\(hazard.hint))",
                    exitCode: ExitStatus.badData.rawValue)
            }
        }
    }

    /// The legacy stores and apps that have waited for at least that many seconds to be relocated.
    func waiting(after limit: Double) -> [AgentProblem] {
        rows.filter { Self.places.contains($0.type) }.compactMap { row in
            let object = row.object
            guard let seconds = object.number("waiting_seconds"), seconds >= limit else { return nil }
            let reason = object.string("detail") ?? object.string("state") ?? ""
            return AgentProblem(
                check: "waiting", path: object.path("path").flatMap { FilePath(bytes: $0) }, store: object.store,
                word: "waiting",
                message:
                    "not relocated for \(Int(seconds)) s: \(reason) (groupstore status names the programs that have it "
                    + "open: close it there)",
                exitCode: ExitStatus.busy.rawValue)
        }
    }

    /// The stores whose commits go unnoticed.
    var unfollowed: [AgentProblem] {
        rows.filter { $0.type == "store" }.compactMap { row in
            guard let state = row.object.string("state"), ["unwatched", "unreadable"].contains(state) else {
                return nil
            }
            let name = row.object.printablePath("store")
            let status = state == "unwatched" ? ExitStatus.configuration : .inputOutput
            return AgentProblem(
                check: "feed", store: row.object.store, word: state,
                message: "\(name) is not followed (\(state)): \(row.object.string("detail") ?? "no reason is known")",
                exitCode: status.rawValue)
        }
    }

    /// The stores whose rows can't be recorded or told.
    var unrecorded: [AgentProblem] {
        rows.filter { $0.type == "store" }.compactMap { row in
            guard let failure = row.object.object("rows_failed") else { return nil }
            let code = failure.string("code") ?? ""
            let status: ExitStatus =
                switch code {
                case "busy": .busy
                case "not_permitted", "not_private": .notPermitted
                case "damaged_shadow", "not_a_database": .badData
                default: .inputOutput
                }
            return AgentProblem(
                check: "rows", store: row.object.store, word: "rows", code: code,
                message: "\(row.object.printablePath("store")): \(Self.unrecordedRows(failure))",
                exitCode: status.rawValue)
        }
    }

    /// The subscribers that have not read for at least that many seconds. A subscriber that reads at all catches up at
    /// once: however many events wait, it gets a few lines for them.
    func stuckSubscribers(after limit: Double) -> [AgentProblem] {
        rows.filter { $0.type == "subscription" }.compactMap { row in
            let object = row.object
            guard let seconds = object.silentSeconds, seconds >= limit else { return nil }
            let progress = Self.progress(ofSubscription: object, saysSilence: false)
            return AgentProblem(
                check: "subscriber", store: object.store, word: "subscriber",
                message:
                    "\(Self.holder(object)) of \(object.printablePath("store")) has not read for \(Int(seconds)) s: "
                    + "\(progress) (see whether it is stopped or hangs; it gets one event "
                    + "for all of them once it reads)",
                exitCode: ExitStatus.busy.rawValue)
        }
    }

}

/// The times after which `status --check` reports what only lasts, in seconds.
struct ProblemLimits {
    /// A subscriber that is behind and hasn't read.
    var stuckSubscriber = Self.standardStuckSubscriber
    /// A store that is there and isn't relocated yet.
    var waiting = Self.standardWaiting

    static let standardStuckSubscriber = 30.0
    static let standardWaiting = 600.0
}

extension JSONObject {
    /// The time for which a subscription's socket has been full, in seconds; nil if it isn't.
    var lagSeconds: Double? { number("lagging_seconds") }

    /// The time for which a subscription's process has not read what it was sent, in seconds; nil if it has read all.
    var silentSeconds: Double? { lagSeconds ?? number("unread_seconds") }
}
