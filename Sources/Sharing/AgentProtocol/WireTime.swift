import FoundationEssentials

/// Times as sent and printed: ISO 8601 in UTC, to the millisecond.
package enum WireTime {
    /// The years 1583 to 9999: the Gregorian calendar, as far as the format's four digits reach.
    private static let range = -12_212_553_600.0..<253_402_300_800.0

    /// Returns the text of a time in seconds since 1970; nil outside those years.
    package static func text(_ seconds: Double) -> String? {
        // NaN is in no range.
        guard range.contains(seconds) else { return nil }
        let milliseconds = Int64((seconds * 1000).rounded())
        let (quotient, remainder) = milliseconds.quotientAndRemainder(dividingBy: 1000)
        let (whole, fraction) = remainder < 0 ? (quotient - 1, remainder + 1000) : (quotient, remainder)
        let digits = String(fraction)
        return Date(timeIntervalSince1970: Double(whole)).formatted(.iso8601).dropLast() + "."
            + String(repeating: "0", count: 3 - digits.count) + digits + "Z"
    }

    /// Parses a time with or without a fraction. Returns seconds since 1970, or nil if the text isn't a time.
    package static func seconds(_ text: String) -> Double? {
        guard text.last == "Z" else { return nil }
        let parts = text.dropLast().split(separator: ".", omittingEmptySubsequences: false)
        guard let first = parts.first, parts.count <= 2, let date = try? Date(first + "Z", strategy: .iso8601) else {
            return nil
        }
        guard parts.count == 2 else { return date.timeIntervalSince1970 }
        guard !parts[1].isEmpty, parts[1].utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            let fraction = Double("0." + parts[1])
        else { return nil }
        return date.timeIntervalSince1970 + fraction
    }
}

extension JSONValue {
    /// Returns the time as a string, or null if it has no text.
    package static func time(_ seconds: Double) -> JSONValue { WireTime.text(seconds).map { .string($0) } ?? .null }
}
