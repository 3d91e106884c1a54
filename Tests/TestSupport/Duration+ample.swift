extension Duration {
    /// For what comes sooner or later: a limit that turns a hang into a failure, and is no statement about speed. On a busy
    /// machine a task may stand in line for minutes behind all other tests.
    package static let ample = Duration.seconds(300)
}
