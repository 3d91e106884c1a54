import AgentProtocol
import FoundationEssentials
import Glibc

/// A message of a stream as the broker's API returns it
/// (https://docs.nats.io/reference/reference-protocols/nats_api_reference#fetching-messages-from-a-stream).
struct StoredMessage {
    let sequence: UInt64
    /// The time at which the broker stored it, in nanoseconds since 1970; nil if its text is no time.
    let time: Int64?
    let message: NATSMessage

    /// Returns nil for what is no message.
    init?(_ object: JSONObject) {
        guard let number = object.integer("seq"), number > 0, let subject = object.string("subject"),
            let body = Self.bytes(object.string("data")), let headers = Self.bytes(object.string("hdrs"))
        else { return nil }
        sequence = UInt64(number)
        time = object.string("time").flatMap(Self.nanoseconds)
        message = NATSMessage(subject: subject, headers: Self.headers(headers), body: body)
    }

    private static func bytes(_ base64: String?) -> [UInt8]? {
        guard let base64 else { return [] }
        return Data(base64Encoded: base64).map { Array($0) }
    }

    /// Parses `NATS/1.0`, and a line for each header. Of several with one name, the first is taken.
    private static func headers(_ bytes: [UInt8]) -> [String: String] {
        var found: [String: String] = [:]
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\r\n").dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let value = line[line.index(after: colon)...].drop { $0 == " " }
            let name = String(line[..<colon])
            if found[name] == nil { found[name] = String(value) }
        }
        return found
    }

    /// Parses a time such as `2026-01-02T03:04:05.123456789Z`.
    static func nanoseconds(_ text: String) -> Int64? {
        let parts = text.prefix(19).split(omittingEmptySubsequences: false) { "-T:".contains($0) }
        let numbers = parts.compactMap { Int32($0) }
        guard text.utf8.count >= 20, numbers.count == 6, parts.count == 6,
            parts.allSatisfy({ $0.utf8.count <= 4 }), numbers.allSatisfy({ $0 >= 0 })
        else { return nil }
        var time = tm()
        (time.tm_year, time.tm_mon, time.tm_mday) = (numbers[0] - 1900, numbers[1] - 1, numbers[2])
        (time.tm_hour, time.tm_min, time.tm_sec) = (numbers[3], numbers[4], numbers[5])
        let seconds = timegm(&time)
        var fraction = String(text.dropFirst(19))
        guard fraction.hasSuffix("Z") else { return nil }
        fraction.removeLast()
        guard fraction.isEmpty || fraction.hasPrefix("."), fraction.utf8.count != 1, fraction.utf8.count <= 10 else {
            return nil
        }
        let digits = fraction.dropFirst()
        guard let number = UInt32(digits + String(repeating: "0", count: 9 - digits.utf8.count)) else { return nil }
        let (product, overflow) = Int64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, sumOverflow) = product.addingReportingOverflow(Int64(number))
        return overflow || sumOverflow ? nil : sum
    }
}
