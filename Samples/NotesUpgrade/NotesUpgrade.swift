import ManagedObjectModels
import StoreMigration
import SystemPackage

/// Prepares a Core Data store before an app opens it.
///
///     NotesUpgrade STORE MODEL
///
/// MODEL is the app's `.xcdatamodeld` or `.momd`. The store is created if it doesn't exist, and migrated if it has an
/// older version of the model.
@main
struct NotesUpgrade {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 3 else {
            print("usage: NotesUpgrade STORE MODEL")
            return
        }
        let model = try ModelBundle(reading: FilePath(arguments[2]))
        var options = StoreOptions()
        options.deadline = .seconds(10)
        let preparation = try await model.prepareStore(at: FilePath(arguments[1]), options: options) {
            fraction, doing in
            print("\(Int(fraction * 100)) % \(doing)")
        }
        switch preparation {
        case .upToDate: print("the store has version \(model.current.name)")
        case .created: print("created an empty store of version \(model.current.name)")
        case .migrated(let versions, let notes):
            print("migrated to " + versions.joined(separator: ", then "))
            for note in notes { print(note) }
        }
        // Now the app opens the store.
    }
}
