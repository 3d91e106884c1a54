import Logging
import StoreWatching

extension FeedLog {
    /// Creates a log that passes the messages on to a logger.
    package init(_ logger: Logger) {
        self.init { level, message in
            let level: Logger.Level =
                switch level {
                case .notice: .notice
                case .warning: .warning
                case .error: .error
                }
            logger.log(level: level, "\(message)")
        }
    }
}
