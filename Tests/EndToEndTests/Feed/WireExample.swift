import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport

/// An example in the protocol's document: a block fenced with the word `wire`.
struct WireExample: Sendable, CustomStringConvertible {
    enum Action: Sendable, Equatable {
        /// `C`: a line that a client sends, verbatim.
        case send(String)
        /// `S`: a line that the client receives.
        case receive(String)
        case receiveEnd
        /// `P`: an action of other programs.
        case program(String)
    }

    struct Step: Sendable {
        let action: Action
        let client: Int
        let count: Int
        let line: Int
    }

    /// The words after `wire`, which change the usual setup.
    let setting: [String]
    let steps: [Step]

    var description: String { "line \(steps.first?.line ?? 0)" }

    /// Parses one block's steps.
    init?(_ block: [(number: Int, text: String)], setting: [String]) throws {
        self.setting = setting
        steps = try block.map { try Self.step($0.text, $0.number) }
    }

    /// Parses a step. In `C2*3 TEXT`, the second client sends three lines.
    private static func step(_ line: String, _ number: Int) throws -> Step {
        guard let match = line.wholeMatch(of: /([CSP])([0-9]?)(?:\*([0-9]+))? (.+)/) else {
            throw Unexpected("line \(number) is no step: \(line)")
        }
        let text = String(match.4)
        let action: Action =
            switch (match.1, text) {
            case ("C", _): .send(text)
            case ("S", "ends the connection"): .receiveEnd
            case ("S", _): .receive(text)
            default: .program(text)
            }
        return Step(
            action: action, client: Int(match.2) ?? 1, count: match.3.flatMap { Int($0) } ?? 1, line: number)
    }

    static func all(in document: String) throws -> [WireExample] {
        var examples: [WireExample] = []
        var block: [(Int, String)]?
        var setting: [String] = []
        let lines = document.split(separator: "\n", omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            if line.hasPrefix("```wire") {
                block = []
                setting = line.split(separator: " ").dropFirst().map(String.init)
            } else if line == "```", let finished = block {
                if let example = try WireExample(finished, setting: setting) { examples.append(example) }
                block = nil
            } else {
                block?.append((index + 1, String(line)))
            }
        }
        return examples
    }
}

/// The values of the words in angle brackets.
struct Placeholders {
    private var known: [String: JSONValue]

    init(_ known: [String: JSONValue]) { self.known = known }

    subscript(name: String) -> JSONValue? {
        get { known[name] }
        set { known[name] = newValue }
    }

    /// Returns the value with all known words replaced.
    func filled(_ value: JSONValue) -> JSONValue {
        switch value {
        case .string(let text):
            if let name = Self.name(text), let value = known[name] { return value }
            return .string(filled(text))
        case .array(let values): return .array(values.map(filled))
        case .object(let object):
            var result = JSONObject()
            for member in object.members { result[member.key] = filled(member.value) }
            return .object(result)
        default: return value
        }
    }

    func filled(_ text: String) -> String {
        text.replacing(/<([a-z0-9_]+)>/) { match in
            switch known[String(match.1)] {
            case .string(let value): value
            case .integer(let value): String(value)
            default: String(match.0)
            }
        }
    }

    /// Returns true if `found` is as the document says. Binds words without a value to the values found.
    mutating func match(_ expected: JSONValue, _ found: JSONValue) -> Bool {
        switch (filled(expected), found) {
        case (.string(let text), _) where Self.name(text) != nil:
            if let name = Self.name(text), name != "_" { known[name] = found }
            return true
        case (.array(let expected), .array(let found)):
            guard expected.count == found.count else { return false }
            for (left, right) in zip(expected, found) where !match(left, right) { return false }
            return true
        case (.object(let expected), .object(let found)):
            guard Set(expected.members.map(\.key)) == Set(found.members.map(\.key)) else { return false }
            for member in expected.members {
                guard let value = found[member.key], match(member.value, value) else { return false }
            }
            return true
        case (let expected, let found): return expected == found
        }
    }

    private static func name(_ text: String) -> String? {
        text.wholeMatch(of: /<([a-z0-9_]+)>/).map { String($0.1) }
    }
}
