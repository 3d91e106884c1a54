import Foundation
import GroupStore

/// Prints a line for each change of a database by any process. It needs no agent.
@main struct StoreFollower {
    static func main() async throws {
        guard CommandLine.arguments.count == 2 else { return print("usage: StoreFollower DATABASE") }
        for try await change in StoreChanges(of: URL(filePath: CommandLine.arguments[1])) {
            switch change {
            case .changed: print("change", change.tables?.joined(separator: ",") ?? "unknown tables")
            case .reset(let reason, _): print("reset", reason)
            default: print("read the database again:", change.changesContent)
            }
            fflush(nil)
        }
    }
}
