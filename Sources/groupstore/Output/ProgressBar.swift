import Glibc
import LinuxSystem

/// A progress bar on one line of a terminal, on standard error. Hand-written because two escape sequences aren't worth
/// a dependency.
struct ProgressBar {
    private static let width = 30
    private var isDrawn = false

    /// Draws the bar, followed by a label, over the previous one.
    mutating func draw(_ fraction: Double, _ label: String) {
        let filled = min(max(Int(fraction * Double(Self.width)), 0), Self.width)
        let bar = String(repeating: "█", count: filled) + String(repeating: "·", count: Self.width - filled)
        Self.write("\r\u{1B}[K\(bar) \(label)")
        isDrawn = true
    }

    /// Removes the bar from the terminal.
    mutating func clear() {
        if isDrawn { Self.write("\r\u{1B}[K") }
        isDrawn = false
    }

    private static func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}

/// The amount, the rate and the remaining time of a copy, as a progress bar.
struct CopyProgress {
    private var bar = ProgressBar()
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
        bar.draw(
            Double(bytes) / Double(total),
            "\(ByteCount(bytes)) of \(ByteCount(total)), \(ByteCount(Int64(rate)))/s, \(left) s left")
    }

    mutating func clear() { bar.clear() }
}
