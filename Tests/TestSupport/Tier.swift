import Glibc
import Testing

/// The tiers of tests. `script/test` runs what is deterministic. `script/soak sample` runs the rest: what needs real
/// time, load, hundreds of processes or random rounds.
package enum Tier {
    /// True in `script/soak sample`.
    package static let isSoak = getenv("GROUPSTORE_TIER").map { String(cString: $0) } == "soak"

    /// What tests with random input begin with: `$GROUPSTORE_SEED`, else 1 in `script/test` and a new number in
    /// `script/soak sample`.
    package static let seed: UInt64 =
        getenv("GROUPSTORE_SEED").flatMap { UInt64(String(cString: $0)) } ?? (isSoak ? UInt64(getpid()) : 1)

    /// Returns all cases in `script/soak sample`, else those that `script/test` runs.
    package static func cases<Case>(_ all: [Case], quick: [Case]) -> [Case] { isSoak ? all : quick }
}

extension Trait where Self == ConditionTrait {
    /// Leaves a test or a suite to `script/soak sample`.
    package static var soak: Self { .enabled(if: Tier.isSoak, "script/soak sample runs it") }
}
