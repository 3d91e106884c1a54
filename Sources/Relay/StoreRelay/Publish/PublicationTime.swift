import Glibc

/// The times that a home gives to its messages and snapshots, in microseconds since 1970. Each is later than the one
/// before, whatever happens to the machine's clock: a follower tells by them which of two batches is older.
struct PublicationTime {
    private var last: Int64 = 0

    /// Notes the time of the stream's last message, after which the next ones come.
    mutating func note(_ time: Int64?) { last = max(last, min(time ?? 0, .max / 2)) }

    mutating func next() -> Int64 {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        last = max(last + 1, Int64(now.tv_sec) * 1_000_000 + Int64(now.tv_nsec) / 1000)
        return last
    }
}
