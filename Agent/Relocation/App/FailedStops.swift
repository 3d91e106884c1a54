import AppRelocation

/// The directories, each as it was, for which an app's programs were stopped without the move succeeding.
///
/// Their programs are stopped again only once the directory differs from all of these, never because time has passed.
/// The directory of a program that makes new names all the time differs each time, so there is an end to it, too.
struct FailedStops: Sendable {
    private var seen: Set<AppFingerprint?> = []
    private static let most = 8

    var isEmpty: Bool { seen.isEmpty }

    func allows(_ fingerprint: AppFingerprint?) -> Bool { seen.count < Self.most && !seen.contains(fingerprint) }

    mutating func insert(_ fingerprint: AppFingerprint?) { seen.insert(fingerprint) }
}
