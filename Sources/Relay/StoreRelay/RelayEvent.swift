import AgentProtocol
import LinuxSystem

/// Something that a relay or a follower reports: one object of JSON, and a sentence for the log.
package struct RelayEvent: Sendable {
    /// The object, with its `type`.
    package let object: JSONObject
    package let sentence: String
    /// True for errors, which are logged even with `--quiet`.
    package let isError: Bool

    init(_ type: String, _ members: JSONObject, _ sentence: String, isError: Bool = false) {
        var object: JSONObject = ["type": .string(type)]
        for member in members.members { object[member.key] = member.value }
        self.object = object
        self.sentence = sentence
        self.isError = isError
    }

    /// Creates the event of an error after which the program continues.
    init(_ error: any ActionableError, type: String = "error") {
        self.init(
            type,
            [
                "code": .string(error.errorCode), "message": .string(error.fullMessage), "hint": .string(error.remedy),
            ], error.messageWithRemedy, isError: true)
    }
}
