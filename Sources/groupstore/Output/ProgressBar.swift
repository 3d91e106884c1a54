import Glibc
import LinuxSystem

/// A number of bytes for people, in the unit that leaves at most four digits.
struct ByteCount: CustomStringConvertible {
    private let bytes: Int64

    init(_ bytes: Int64) { self.bytes = bytes }

    var description: String {
        var value = Double(bytes)
        for unit in ["B", "KB", "MB", "GB"] {
            if value < 1000 { return unit == "B" ? "\(bytes) B" : "\((value * 10).rounded() / 10) \(unit)" }
            value /= 1000
        }
        return "\((value * 10).rounded() / 10) TB"
    }
}

/// A progress bar on one line of a terminal: the amount done, the rate and the remaining time.
struct ProgressBar {
    private let total: Int64
    private let started = ContinuousClock.now
    private var drawn: ContinuousClock.Instant?

    init(total: Int64) { self.total = max(total, 1) }

    /// Draws the bar, at most ten times a second.
    mutating func show(_ bytes: Int64) {
        let now = ContinuousClock.now
        if let drawn, drawn.duration(to: now) < .milliseconds(100), bytes < total { return }
        drawn = now
        let seconds = max(started.duration(to: now).seconds, 0.001)
        let rate = Double(bytes) / seconds
        let left = rate > 0 ? Int(Double(total - bytes) / rate) : 0
        let filled = Int(Double(bytes) / Double(total) * 30)
        let blocks = String(repeating: "█", count: min(filled, 30)) + String(repeating: "·", count: max(0, 30 - filled))
        let line =
            "\r\u{1B}[K\(blocks) \(ByteCount(bytes)) of \(ByteCount(total)), \(ByteCount(Int64(rate)))/s, \(left) s left"
        Self.write(line)
    }

    func clear() { if drawn != nil { Self.write("\r\u{1B}[K") } }

    private static func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
