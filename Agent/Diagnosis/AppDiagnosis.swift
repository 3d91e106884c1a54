import AppRelocation
import GroupContainers
import LinuxSystem
import SystemPackage

/// Finds the move of a program's directory into a group that was interrupted and that no process goes on with.
package struct AppDiagnosis {
    private let group: FilePath
    /// The move; nil if there is none.
    package let unfinished: UnfinishedAppMove?

    package init(_ group: FilePath) {
        self.group = group
        unfinished = (try? GroupContainer(group)).flatMap(AppRelocation.unfinished)
    }

    /// The move, if its directory is at neither place.
    package var hidden: UnfinishedAppMove? { unfinished.flatMap { $0.isHidden ? $0 : nil } }

    /// A sentence about the move.
    package static func sentence(_ move: UnfinishedAppMove) -> String {
        "the move of \(PrintablePath(move.source)) to \(PrintablePath(move.destination)) was interrupted"
            + (move.isHidden ? " while the directory was at neither place: its program finds nothing" : "")
    }

    /// The command that ends the move.
    package var remedy: String { "finish it or take it back: groupstore recover \(group.shellWord)" }

    package func findings() -> [Finding] {
        guard let unfinished else { return [] }
        return [
            Finding(
                "app_move", unfinished.isHidden ? .problem(.badData) : .warning, Self.sentence(unfinished),
                remedy: remedy)
        ]
    }
}
