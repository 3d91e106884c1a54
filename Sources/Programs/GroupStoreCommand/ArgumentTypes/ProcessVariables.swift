import Glibc

/// The environment variables that locate groups, the configuration and the agent, or describe the terminal.
enum ProcessVariables {
    static var all: [String: String] {
        let names = [
            "GROUPSTORE_CONTAINERS", "GROUPSTORE_SOCKET", "HOST_XDG_DATA_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
            "XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "XDG_RUNTIME_DIR", "FLATPAK_ID", "HOME", "NOTIFY_SOCKET", "LISTEN_FDS",
            "LISTEN_PID", "LISTEN_FDNAMES", "JOURNAL_STREAM", "TERM", "NO_COLOR", "XDG_STATE_HOME",
        ]
        return Dictionary(
            uniqueKeysWithValues: names.compactMap { name in getenv(name).map { (name, String(cString: $0)) } })
    }
}
