import AppRelocation

/// The directories, each as it was, for which an app's programs were stopped without the move succeeding.
///
/// Their programs are stopped again only once the directory differs from all of these, never because time has passed.
/// The directory of a program that makes new names all the time differs each time, so there is an end to it, too.
struct FailedStops: Sendable {
    private var seen: Set<AppFingerprint?> = []
    private var count = 0
    private static let most = 8

    var isEmpty: Bool { count == 0 }

    func allows(_ fingerprint: AppFingerprint?) -> Bool { count < Self.most && !seen.contains(fingerprint) }

    /// Records a stop, with the directory before and after it: a program that ends writes its stores' logs into them.
    mutating func insert(_ fingerprints: [AppFingerprint?]) {
        count += 1
        seen.formUnion(fingerprints)
    }
}
