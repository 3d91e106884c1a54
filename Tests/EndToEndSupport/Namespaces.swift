import TestSupport

/// What tests need of unshare(1).
package enum Namespaces {
    /// Options for new user, mount and PID namespaces with their own /proc.
    package static let flags: [Word] = [
        "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
    ]

    package static let canLimitWatches =
        (try? run("unshare", flags + ["sh", "-c", "echo 1 > /proc/sys/user/max_inotify_watches"]).status) == 0

    package static let areAvailable = (try? run("unshare", flags + ["true"]).status) == 0
}
