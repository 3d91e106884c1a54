import LinuxSystem
import SystemPackage

/// A cache of recent event names. A burst of commits repeats a few names, and validating the name is most of an event's
/// cost.
struct RecentNames {
    private var names: [[UInt8]: FilePath.Component] = [:]
    private static let limit = 256

    /// Returns the name, or nil if the bytes are not a valid one.
    mutating func name(_ bytes: [UInt8]) -> FilePath.Component? {
        if let cached = names[bytes] { return cached }
        guard let name = FilePath.Component(bytes: bytes) else { return nil }
        if names.count == Self.limit { names = [:] }
        names[bytes] = name
        return name
    }
}
