import AgentProtocol
import Glibc
import LinuxSystem

/// A time for people: the date and the time of day in the local time zone, such as `2026-11-25 13:04:05`.
///
/// Hand-written because Foundation's local times need ICU. JSON has times in UTC (`WireTime`).
struct LocalTime: CustomStringConvertible {
    let description: String

    /// - Parameters:
    ///   - seconds: Seconds since 1970.
    ///   - precise: True for milliseconds too.
    init(_ seconds: Double, precise: Bool = false) {
        let isPlausible = abs(seconds) < 1e15
        let milliseconds = isPlausible ? Int((seconds * 1000).rounded(precise ? .toNearestOrAwayFromZero : .down)) : 0
        let (quotient, remainder) = milliseconds.quotientAndRemainder(dividingBy: 1000)
        var whole: time_t = remainder < 0 ? quotient - 1 : quotient
        let fraction = remainder < 0 ? remainder + 1000 : remainder
        var parts = tm()
        guard isPlausible, localtime_r(&whole, &parts) != nil else {
            description = "no time"
            return
        }
        let date = [(Int(parts.tm_year) + 1900, 4), (Int(parts.tm_mon) + 1, 2), (Int(parts.tm_mday), 2)]
        let clock = [parts.tm_hour, parts.tm_min, parts.tm_sec].map { (Int($0), 2) }
        let day = date.map(Self.padded).joined(separator: "-")
        let time = clock.map(Self.padded).joined(separator: ":")
        description = "\(day) \(time)" + (precise ? "." + Self.padded(fraction, 3) : "")
    }

    /// Creates the local form of a time on the wire, or that text itself if it isn't one.
    init(_ wire: String, precise: Bool = false) {
        let seconds = WireTime.seconds(wire)
        self.init(text: seconds.map { LocalTime($0, precise: precise).description } ?? wire)
    }

    private init(text: String) { description = text }

    /// Returns the present time.
    static func now(precise: Bool = false) -> LocalTime {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return LocalTime(Double(now.tv_sec) + Double(now.tv_nsec) / 1e9, precise: precise)
    }

    private static func padded(_ value: Int, _ width: Int) -> String {
        let digits = String(value)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}
