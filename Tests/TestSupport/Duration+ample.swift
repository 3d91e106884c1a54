extension Duration {
    /// A limit for events whose time is unknown. It turns a hang into a failure and makes no statement about speed. On
    /// a busy machine a task may wait for minutes behind all other tests.
    package static let ample = Duration.seconds(300)
}
