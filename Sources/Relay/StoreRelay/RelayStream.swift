import LinuxSystem

/// The stream of one store, with the subjects of its messages (Documentation/Relay.md, "Subjects").
package struct RelayStream: Sendable, Equatable {
    /// The name without `GS_`.
    package let name: String

    /// Throws `RelayError.badName` unless the name is 1 to 64 letters, digits, `-` and `_`: others have a meaning in
    /// subjects.
    package init(_ name: String) throws(RelayError) {
        guard Self.isName(name) else { throw .badName("stream", name) }
        self.name = name
    }

    /// The stream's name at the broker.
    package var streamName: String { "GS_\(name)" }
    package var changes: String { "gs.\(name).changes" }
    package var snapshots: String { "gs.\(name).snapshot" }
    /// The subject on which the home names the number of the stream's last message.
    package var news: String { "gs.\(name).published" }
    /// The beginning of the subjects by which followers reach the stream from an account of their own.
    package var api: String { "gs.\(name).api" }

    package func acknowledgements(of follower: String) -> String { "gs.\(name).ack.\(follower)" }

    /// The beginning of the subjects on which the home receives answers. It answers nobody there.
    package var homeInbox: String { "_INBOX.gs.\(name).home" }

    /// The beginning of the subjects on which a follower receives answers.
    package func inbox(of follower: String) -> String { "_INBOX.gs.\(name).follower.\(follower)" }

    /// Returns true for a subject that the home may answer: an inbox, and not its own. A broker delivers an answer with
    /// the home's permissions, so an answer on any other subject would be a request that the follower itself may not
    /// make.
    package func isReplySubject(_ subject: String) -> Bool {
        let tokens = subject.split(separator: ".", omittingEmptySubsequences: false)
        return subject.utf8.count <= 256 && (2...10).contains(tokens.count) && tokens[0] == "_INBOX"
            && tokens.dropFirst().allSatisfy { Self.isName(String($0)) } && !subject.hasPrefix(homeInbox)
    }

    /// The named subscriber of the home's history that stands for a follower.
    package func subscriber(_ follower: String) -> String { "relay:\(name):\(follower)" }

    /// Returns true for a name that is one token of a subject.
    package static func isName(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }
}
