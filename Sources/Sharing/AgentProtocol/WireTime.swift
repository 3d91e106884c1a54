import FoundationEssentials

/// Times as sent and printed: ISO 8601 in UTC, to the millisecond.
package enum WireTime {
    /// The years 1583 to 9999: the Gregorian calendar, as far as the format's four digits reach.
    private static let range = -12_212_553_600.0..<253_402_300_800.0

    /// Returns the text of a time in seconds since 1970; nil outside those years. Written here because each step of
    /// rows has a time, and Foundation takes as long for it as for all else that is printed.
    package static func text(_ seconds: Double) -> String? {
        // NaN is in no range.
        guard range.contains(seconds) else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(24)
        let milliseconds = Int((seconds * 1000).rounded())
        func floored(_ number: Int, by divisor: Int) -> (quotient: Int, remainder: Int) {
            let (quotient, remainder) = number.quotientAndRemainder(dividingBy: divisor)
            return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
        }
        let (days, rest) = floored(milliseconds, by: 86_400_000)
        // Days and months are counted from the first of March, after which leap days come last. 1600 began an era of
        // 400 years, which are equally long.
        let (era, day) = floored(days + 135_080, by: 146_097)
        let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365
        let dayOfYear = day - (365 * year + year / 4 - year / 100)
        let month = (5 * dayOfYear + 2) / 153
        let isNextYear = month >= 10
        append(1600 + 400 * era + year + (isNextYear ? 1 : 0), digits: 4, "-", to: &bytes)
        append(isNextYear ? month - 9 : month + 3, digits: 2, "-", to: &bytes)
        append(dayOfYear - (153 * month + 2) / 5 + 1, digits: 2, "T", to: &bytes)
        append(rest / 3_600_000, digits: 2, ":", to: &bytes)
        append(rest / 60000 % 60, digits: 2, ":", to: &bytes)
        append(rest / 1000 % 60, digits: 2, ".", to: &bytes)
        append(rest % 1000, digits: 3, "Z", to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends a number with at least so many digits, and a character.
    private static func append(_ number: Int, digits: Int, _ end: Unicode.Scalar, to bytes: inout [UInt8]) {
        var divisor = digits == 4 ? 1000 : digits == 3 ? 100 : 10
        while number / divisor >= 10 { divisor *= 10 }
        while divisor > 0 {
            bytes.append(UInt8(ascii: "0") + UInt8(number / divisor % 10))
            divisor /= 10
        }
        bytes.append(UInt8(ascii: end))
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
