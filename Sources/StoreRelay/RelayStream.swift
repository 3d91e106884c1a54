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

    package func acknowledgements(of follower: String) -> String { "gs.\(name).ack.\(follower)" }

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
