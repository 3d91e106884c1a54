import LinuxSystem
import SystemPackage

/// Names that events had lately. A burst of commits repeats a few names, and checking one anew for each event is most
/// of what an event costs.
struct RecentNames {
    private var names: [[UInt8]: FilePath.Component] = [:]
    private static let limit = 256

    /// Nil when the bytes are no name.
    mutating func name(_ bytes: [UInt8]) -> FilePath.Component? {
        if let known = names[bytes] { return known }
        guard let name = FilePath.Component(bytes: bytes) else { return nil }
        if names.count == Self.limit { names = [:] }
        names[bytes] = name
        return name
    }
}
