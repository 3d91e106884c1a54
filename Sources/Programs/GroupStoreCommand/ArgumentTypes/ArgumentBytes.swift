import Glibc
import LinuxSystem
import SystemPackage

/// The command line as the kernel passed it. Swift's own copy repairs bytes that aren't UTF-8, but a path may contain
/// any.
enum ArgumentBytes {
    /// Returns the path that an argument names, alone or after `--option=`, with its original bytes.
    static func path(_ repaired: String) -> FilePath {
        // Nothing was repaired, as a rule. A command may name thousands of stores.
        guard repaired.unicodeScalars.contains("\u{FFFD}") else { return FilePath(repaired) }
        let candidates =
            raw
            + raw.compactMap { argument in
                argument.firstIndex(of: UInt8(ascii: "=")).map { Array(argument[($0 + 1)...]) }
            }
        let original = candidates.first { String(decoding: $0, as: UTF8.self) == repaired }
        return original.flatMap { FilePath(bytes: $0) } ?? FilePath(repaired)
    }

    private static var raw: [[UInt8]] { ProgramArguments.bytes }
}

func workingDirectory() -> String {
    guard let path = getcwd(nil, 0) else { return "/" }
    defer { free(path) }
    return String(cString: path)
}
