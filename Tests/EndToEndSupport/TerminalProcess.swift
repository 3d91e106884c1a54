import AgentProtocol
import LinuxSystem
import TestSupport

/// A program on a pseudoterminal, whose screen `Tests/Terminal/screen.py` keeps.
package final class TerminalProcess {
    private let process: RunningProcess

    package init(
        columns: Int, rows: Int, _ program: Word, _ arguments: [Word], environment: [String: String] = [:]
    ) throws {
        let words: [Word] = [Programs.source("Tests/Terminal/screen.py"), "\(columns)", "\(rows)", program]
        process = try RunningProcess(
            "python3", words + arguments,
            environment: ["TERM": "xterm-256color", "NO_COLOR": "", "PYTHONDONTWRITEBYTECODE": "1"]
                .merging(environment) { $1 })
    }

    /// Sends a command and returns the answer. Throws if the terminal doesn't come to the state that the command names.
    @discardableResult
    package func command(_ words: String) throws -> State {
        process.send(Word(words))
        guard let line = try process.line(), let object = JSONObject(line: line) else {
            throw Unexpected("screen.py ended: \(try process.wait().errors)")
        }
        let state = State(object: object)
        if let error = object.string("error") { throw Unexpected("\(error): \(state.text)") }
        return state
    }

    /// What the terminal shows.
    package struct State {
        package let object: JSONObject

        private func strings(_ key: String) -> [String] {
            guard case .array(let values)? = object[key] else { return [] }
            return values.compactMap { if case .string(let text) = $0 { text } else { nil } }
        }

        package var lines: [String] { strings("screen") }
        package var text: String { (lines + faults).joined(separator: "\n") }
        /// The selected renditions (SGR) that were used.
        package var styles: [String] { strings("styles") }
        package var faults: [String] { strings("faults") }
        package var isAlternate: Bool { object.bool("alternate") == true }
        /// True if a shell could go on in it.
        package var isAsBefore: Bool {
            !isAlternate && ["cursor", "echo", "canonical"].allSatisfy { object.bool($0) == true }
        }
        package var status: Int64? { object.integer("status") }
    }
}
