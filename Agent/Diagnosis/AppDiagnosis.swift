import AppRelocation
import GroupContainers
import LinuxSystem
import SystemPackage

/// Finds the move of a program's directory into a group that was interrupted and that no process goes on with, and the
/// programs that moves have left stopped.
package struct AppDiagnosis {
    private let group: FilePath
    /// The move; nil if there is none.
    package let unfinished: UnfinishedAppMove?

    /// The programs that a move has stopped, or was about to, and not started again; nil if there are none.
    package let stopped: StoppedPrograms?

    package init(_ group: FilePath) {
        self.group = group
        let container = try? GroupContainer(group)
        unfinished = container.flatMap(AppRelocation.unfinished)
        stopped = container.flatMap(AppRelocation.leftStopped)
    }

    /// The move, if its directory is at neither place.
    package var hidden: UnfinishedAppMove? { unfinished.flatMap { $0.isHidden ? $0 : nil } }

    /// A sentence about the move.
    package static func sentence(_ move: UnfinishedAppMove) -> String {
        let sentence = "the move of \(PrintablePath(move.source)) to \(PrintablePath(move.destination)) was interrupted"
        guard move.isHidden else { return sentence }
        return sentence + " while the directory was at neither place: "
            + (move.isReplaced ? "something else is at the old one" : "its program finds nothing")
    }

    /// The command that ends the move.
    package var remedy: String { "finish it or take it back: groupstore recover \(group.shellWord)" }

    /// A sentence about the programs.
    package static func sentence(_ stopped: StoppedPrograms) -> String {
        "\(stopped.programs.list) is recorded as stopped for the move of \(PrintablePath(stopped.source.path)) to "
            + "\(PrintablePath(stopped.destination.path)), and not as started again"
    }

    /// The commands that start the programs, or forget them.
    package var startRemedy: String {
        "start it: groupstore recover \(group.shellWord); or leave it stopped: "
            + "groupstore recover --leave-stopped \(group.shellWord)"
    }

    package func findings() -> [Finding] {
        let move = unfinished.map {
            Finding("app_move", $0.isHidden ? .problem(.badData) : .warning, Self.sentence($0), remedy: remedy)
        }
        let programs = stopped.map {
            Finding("app_stopped", .problem(.badData), Self.sentence($0), remedy: startRemedy)
        }
        return [move, programs].compactMap { $0 }
    }
}
