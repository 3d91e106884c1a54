import Glibc
import SystemPackage

/// Stores, models and mapping models of real apps, in `$GROUPSTORE_REAL_STORES`.
package enum SampleStores {
    package static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }
}
