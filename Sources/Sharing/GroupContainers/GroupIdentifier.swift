import Glibc
import LinuxSystem
import SystemPackage

/// The name of a group container, such as `group.com.example.notes`.
package struct GroupIdentifier: Hashable, Sendable, CustomStringConvertible {
    package let rawValue: String
    package var description: String { rawValue }

    /// Returns nil unless `rawValue` is one plain directory name: letters, digits, `.`, `-` and `_`, at most 200 bytes,
    /// not beginning with a dot.
    package init?(_ rawValue: String) {
        let allowed = rawValue.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
                true
            default: false
            }
        }
        guard allowed, !rawValue.isEmpty, !rawValue.hasPrefix("."), rawValue.utf8.count <= 200 else { return nil }
        self.rawValue = rawValue
    }

    /// Returns the group's directory for the case that no configuration names one: `$GROUPSTORE_CONTAINERS/ID`, else
    /// `app-groups/ID` under `$XDG_DATA_HOME` or `~/.local/share`.
    ///
    /// Inside a Flatpak, where `$FLATPAK_ID` is set, `$XDG_DATA_HOME` is the app's own directory. The user's is
    /// `$HOST_XDG_DATA_HOME`, which is set only if the user had set `$XDG_DATA_HOME` (Flatpak's common/flatpak-run.c,
    /// `flatpak_run_apply_env_appid`).
    package func defaultDirectory(environment: [String: String]) -> FilePath? {
        Self.defaultDirectories(environment: environment)?.appending(rawValue)
    }

    /// Returns the directory of all those directories.
    package static func defaultDirectories(environment: [String: String]) -> FilePath? {
        func directory(_ variable: String) -> FilePath? {
            environment[variable].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil }
        }
        if let containers = directory("GROUPSTORE_CONTAINERS") { return containers }
        let own = environment["FLATPAK_ID"] == nil ? directory("XDG_DATA_HOME") : nil
        let data =
            directory("HOST_XDG_DATA_HOME") ?? own ?? directory("HOME")?.appending(".local").appending("share")
        return data?.appending("app-groups")
    }
}
