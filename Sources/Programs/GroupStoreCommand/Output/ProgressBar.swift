import Glibc
import LinuxSystem

/// A progress bar on one line of a terminal, on standard error. Hand-written because two escape sequences aren't worth
/// a dependency.
struct ProgressBar {
    private var isDrawn = false

    /// Draws the bar, followed by a label, over the previous one. It fits the terminal's current width.
    mutating func draw(_ fraction: Double, _ label: String) {
        Self.write("\r\u{1B}[K" + Self.line(fraction, label, columns: Self.terminalColumns))
        isDrawn = true
    }

    /// Returns the bar and its label, in at most `columns - 1` characters: a terminal wraps a full line, and the next
    /// bar would not replace it. The label is cut if it leaves no room for a bar of eight.
    static func line(_ fraction: Double, _ label: String, columns: Int) -> String {
        let room = max(columns - 1, 1)
        let width = min(max(room - label.count - 1, min(8, room)), 60)
        let filled = fraction.isNaN ? 0 : Int((min(max(fraction, 0), 1) * Double(width)).rounded(.down))
        let bar = String(repeating: "█", count: filled) + String(repeating: "·", count: width - filled)
        let rest = room - width - 1
        guard rest > 0, !label.isEmpty else { return bar }
        return "\(bar) \(label.count > rest ? label.prefix(rest - 1) + "…" : label[...])"
    }

    /// The width of the terminal at standard error; 80 if it doesn't say.
    private static var terminalColumns: Int {
        var size = winsize()
        guard ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
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
