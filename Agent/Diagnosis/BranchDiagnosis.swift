import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Finds the files of damaged branches that rescues have kept in a directory. They are no hazard by themselves: they
/// hold what was to be saved.
package struct BranchDiagnosis {
    /// The branches, oldest first.
    package let damaged: [SavedBranches.Saved]

    /// - Parameter only: The name of the store; nil for all stores of the directory.
    package init(_ path: FilePath, only store: FilePath.Component? = nil) {
        let container = try? GroupContainer(path)
        let found = container.flatMap { try? SavedBranches($0).damaged() } ?? []
        damaged = found.filter { store == nil || $0.name == store }
    }

    /// Returns one finding per branch.
    package func findings() -> [Finding] {
        damaged.map {
            Finding(
                "rescue", .warning, $0.damageSentence ?? "", remedy: $0.damageRemedy, code: "branch_damaged")
        }
    }
}
